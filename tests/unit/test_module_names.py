"""Every text that names a module of ours names one that is there, so that none is left behind by a move."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.worker import daemon

ROOT = Path(__file__).parents[2]
DOTTED = re.compile(r"holdfast(?:_bench)?(?:\.[A-Za-z_]\w*)+")
# A file without it has no text that is such a name.
BEGUN = re.compile(r"""["'}]holdfast(?:_bench)?\.""")
IN_TEXT = re.compile(r"(?<![\w./:@-])holdfast(?:\.[A-Za-z_]\w*){2,}")
# Names of settings, files and fields of Flink's shapes that are no modules.
OTHERS = {
    "holdfast.operators.compared",
    "holdfast.checkpoint",
    "holdfast.history",
    "holdfast.home",
    "holdfast.peer",
    "holdfast.files.LocalFiles",
    "holdfast.state.CassandraStateStoreProvider",
    "holdfast.state.CommittedBatches",
    "holdfast.state.Layout",
    "holdfast.state.RedisStateStoreProvider",
    "holdfast.state.TiKvStateStoreProvider",
    "holdfast.stateStore.database",
    "holdfast.stateStore.prefix",
    "holdfast.stateStore.providerClass",
    "holdfast.target",
    "holdfast.toml",
    "holdfast.version",
    "holdfast.watch",
    "holdfast.zookeeper",
}


def texts(file: Path) -> Iterator[str]:
    """The texts in a Python file, those that are documents left out."""
    documents: set[ast.expr] = set()
    # A node comes before the nodes in it.
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if node.body and isinstance(node.body[0], ast.Expr):
                documents.add(node.body[0].value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documents:
            yield node.value


def there(name: str) -> bool:
    """Whether a dotted name is a module, or is reached from one."""
    words = name.split(".")
    for count in range(len(words), 0, -1):
        home = ".".join(words[:count])
        try:
            if importlib.util.find_spec(home) is None:
                continue
        except ModuleNotFoundError:
            continue
        if count == len(words):
            return True
        value: object = importlib.import_module(home)
        for word in words[count:]:
            if not hasattr(value, word):
                return False
            value = getattr(value, word)
        return True
    return False


@pytest.mark.slow
def test_a_text_that_is_the_name_of_a_module_names_one_that_is_there() -> None:
    folders = (ROOT / "src", ROOT / "benchmarks")
    named = {
        text: str(file.relative_to(ROOT))
        for folder in folders
        for file in sorted(folder.rglob("*.py"))
        if BEGUN.search(file.read_text(encoding="utf-8"))
        for text in texts(file)
        if DOTTED.fullmatch(text) and text not in OTHERS
    }
    assert len(named) > 40
    assert {text: file for text, file in named.items() if not there(text)} == {}


def test_a_module_that_a_document_names_is_there() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    named = {
        text: str(page.relative_to(ROOT))
        for page in pages
        if page.name != "CHANGELOG.md" and "decisions" not in page.parts
        for text in IN_TEXT.findall(page.read_text(encoding="utf-8"))
        if text not in OTHERS
    }
    assert named
    assert {text: page for text, page in named.items() if not there(text)} == {}


def test_what_pyproject_names_is_there() -> None:
    files = ("pyproject.toml", "import-rules.ini")
    text = "".join((ROOT / name).read_text(encoding="utf-8") for name in files)
    names = set(re.findall(r"holdfast(?:\.[a-z_]\w*)+", text))
    assert len(names) >= 15
    assert sorted(name for name in names if not there(name)) == []
    for path in re.findall(r'"(src/holdfast/[^"*]*)', text):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("name", [name for name in daemon._LOADED if name.startswith("holdfast.")])
def test_the_daemon_loads_modules_that_are_there(name: str) -> None:
    """It goes on without one that is not, and each worker would load it anew."""
    importlib.import_module(name)


@pytest.mark.parametrize("name", sorted(holdfast._NAMES))
def test_a_public_name_says_where_it_is(name: str) -> None:
    home, own = holdfast._NAMES[name]
    assert getattr(importlib.import_module(home), own) is getattr(holdfast, name)
