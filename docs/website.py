"""Build the documentation as a static site with search: `make docs` writes it to `build/site`.

The pages are those of the repository. For the site, large pages become a page for each section, each error
gets a heading, and each error of Spark a page. Nothing is fetched, neither by the build nor by a browser.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
START = "docs/README.md"
SPARK_ERRORS = "docs/guides/spark-errors.md"
ERRORS = "docs/reference/errors.md"
# Pages over 150 KB: a page for each of their sections.
LARGE = (ERRORS, "docs/reference/json.md", "docs/reference/python.md")
# Outside of docs/, with what they link to.
OTHERS = (
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "examples",
    "deploy/README.md",
)
_LINK = re.compile(r"\]\((?P<target>[^)#\s]*)(?P<anchor>#[^)\s]+)?\)")
_HEADING = re.compile(r"^(#{1,6}) (.*)$")
_COLOR = re.compile(r"\x1b\[[\d;]*m")
_CONDITION = re.compile(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`")

# A page that the navigation leaves out, because it is listed on the page above it.
_ORPHAN = "---\norphan: true\ntocdepth: 2\n---\n\n"

Pages = dict[str, str]


def pages() -> Pages:
    """Return the text of every page of the site by its path."""
    found = {START: (ROOT / START).read_text(encoding="utf-8")}
    for file in sorted([*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]):
        found[_path(file)] = file.read_text(encoding="utf-8")
    for name in OTHERS:
        if name.endswith(".md"):
            found[name] = (ROOT / name).read_text(encoding="utf-8")
    found[ERRORS] = with_headings(found[ERRORS])
    moved: dict[tuple[str, str], str] = {}
    for large in LARGE:
        parts, anchors = split(large, found.pop(large))
        found |= parts
        moved |= {(large, anchor): page for anchor, page in anchors.items()}
    found = {path: relinked(path, text, moved) for path, text in found.items()}
    conditions = spark_conditions()
    errors = spark_error_pages(found[SPARK_ERRORS], conditions)
    links = [f"- [{title(text)}](spark-errors/{Path(page).name})" for page, text in errors.items()]
    found[SPARK_ERRORS] += "\n".join(["\n## One page for each error\n", *links, ""])
    found |= errors
    found["index.md"] = index(found)
    return found


def title(text: str) -> str:
    """Return the title of a page."""
    return next(line[2:] for line in text.splitlines() if line.startswith("# "))


def _path(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _outside_fences(text: str) -> Iterable[tuple[str, bool]]:
    fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
            yield line, False
        else:
            yield line, not fenced


def with_headings(text: str) -> str:
    """Return the page of errors with a heading for each code, so that a search leads to it."""
    lines: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")] if line.startswith("| `HF-E") else []
        if not cells:
            if not re.match(r"\| Code \||\|(---\|){4}$", line):
                lines.append(line)
            continue
        code, fact, expected, hint = (cell.strip("| ") for cell in cells)
        lines += [f"#### {code.strip('`')}", "", *_index(code.strip("`")), fact.replace("<", "\\<"), ""]
        lines += [f"- Expected: {expected}".replace("<", "\\<")] if expected not in ("", "–") else []
        lines += [f"- What to do: {hint}".replace("<", "\\<")] if hint not in ("", "–") else []
        lines.append("")
    return "\n".join(lines) + "\n"


def _index(word: str) -> list[str]:
    """Return an entry of the index: a search for the word puts it first."""
    return [f"```{{index}} ! {word}", "```", ""]


def split(path: str, text: str) -> tuple[Pages, dict[str, str]]:
    """Return a page for each section of a large page, with the start, and the page of each anchor."""
    stem = path.removesuffix(".md")
    parts: dict[str, list[str]] = {path: []}
    anchors: dict[str, str] = {}
    now = path
    for line, is_text in _outside_fences(text):
        heading = _HEADING.match(line) if is_text else None
        if heading and len(heading[1]) == 2:
            now = f"{stem}-{_anchor(heading[2])}.md"
            parts[now] = []
        if heading:
            anchors.setdefault(_anchor(heading[2]), now)
        parts[now].append(line[1:] if heading and now != path else line)
    names = [Path(part).name for part in parts if part != path]
    titles = [lines[0].removeprefix("# ") for part, lines in parts.items() if part != path]
    parts[path] += [f"- [{words}]({name})" for words, name in zip(titles, names, strict=True)]
    texts = {part: "\n".join(lines) + "\n" for part, lines in parts.items()}
    return {part: text if part == path else _ORPHAN + text for part, text in texts.items()}, anchors


def relinked(path: str, text: str, moved: Mapping[tuple[str, str], str]) -> str:
    """Return a page whose links to a section of a large page lead to that section's own page."""
    folder = Path(path).parent

    def link(match: re.Match[str]) -> str:
        target, anchor = match["target"], match["anchor"] or ""
        if "://" in target or not anchor:
            return match[0]
        file = (ROOT / folder / target).resolve() if target else None
        full = _path(file) if file is not None and file.is_relative_to(ROOT) else _large(path)
        page = moved.get((full, anchor[1:]))
        if page is None:
            return match[0]
        return f"]({Path(*['..'] * len(folder.parts), page).as_posix()}{anchor})"

    return (
        "\n".join(_LINK.sub(link, line) if is_text else line for line, is_text in _outside_fences(text))
        + "\n"
    )


def _large(path: str) -> str:
    return next((large for large in LARGE if path.startswith(f"{large.removesuffix('.md')}-")), path)


def _tree(caption: str, names: Iterable[object], *, hidden: bool = False) -> str:
    lines = ["", "```{toctree}", f":caption: {caption}", ":maxdepth: 1"]
    lines += [":hidden:"] if hidden else []
    return "\n".join([*lines, "", *(str(name).removesuffix(".md") for name in names), "```", ""])


class Case(NamedTuple):
    """A row of the page of Spark's errors."""

    conditions: tuple[str, ...]
    error: str
    cause: str
    advice: str
    section: str


def spark_conditions() -> Mapping[str, Any]:
    """Return the error conditions of the installed PySpark; empty without PySpark."""
    try:
        jars = Path(str(metadata.distribution("pyspark").locate_file("pyspark/jars")))
    except metadata.PackageNotFoundError:
        return {}
    [jar] = [path for path in jars.glob("spark-common-utils*.jar") if "java" not in path.name]
    with zipfile.ZipFile(jar) as archive:
        conditions: Mapping[str, Any] = json.loads(archive.read("error/error-conditions.json"))
    return conditions


def spark_cases(text: str) -> list[Case]:
    """Return the rows of the page of Spark's errors."""
    cases: list[Case] = []
    section = ""
    for line in text.splitlines():
        if line.startswith("## "):
            section = line[3:]
        cells = [cell.strip() for cell in line.strip("|").split(" | ")] if line.startswith("| ") else []
        if len(cells) == 3 and cells[0] != "Spark's error":
            error, cause, advice = (cell.strip("| ") for cell in cells)
            if advice.startswith("the same"):
                advice = cases[-1].advice + advice.removeprefix("the same")
            cases.append(Case(tuple(_CONDITION.findall(error)), error, cause, advice, section))
    return cases


def spark_error_pages(text: str, conditions: Mapping[str, Any]) -> Pages:
    """Return a page for each error of Spark, by condition or, without one, by message."""
    by_name: dict[str, list[Case]] = {}
    for case in spark_cases(text):
        names = case.conditions or re.findall(r"`([^`]+)`", case.error)[:1]
        for name in names:
            by_name.setdefault(name, []).append(case)
    parents = {
        sub: parent
        for parent, entry in conditions.items()
        for sub in entry.get("subClass", {})
        if sub in by_name
    }
    made = {}
    for name, cases in by_name.items():
        heading = f"{parents[name]}.{name}" if name in parents and name not in conditions else name
        lines = [f"{_ORPHAN}# {heading}", "", *_index(name)]
        entry = conditions.get(name) or conditions.get(parents.get(name, ""), {}).get("subClass", {}).get(
            name
        )
        if entry:
            lines += ["Spark's message:", "", "```text", *entry["message"], "```", ""]
        for case in cases:
            lines += [
                f"**Seen as:** {_deeper(case.error)}",
                "",
                f"**Cause:** {_deeper(case.cause)}",
                "",
                f"**What to do:** {_deeper(case.advice)}",
                "",
            ]
        lines += [
            "Do not delete the checkpoint before that. [All errors of Spark](../spark-errors.md)",
            "",
        ]
        made[f"docs/guides/spark-errors/{_anchor(name).replace('-', '_')}.md"] = "\n".join(lines)
    return made


def _deeper(text: str) -> str:
    """Relink a text of the page of Spark's errors for a folder beside that page."""
    return re.sub(r"\]\((?!https?:)([^)#]+)", r"](../\1", text).replace("](#", "](../spark-errors.md#")


def index(found: Pages) -> str:
    """Return the start page: the sentence of the README, and the lists of docs/README.md as navigation."""
    readme = found["README.md"].splitlines()
    sentence = " ".join(readme[2 : readme.index("", 2)])
    start = found[START]
    listed: dict[str, list[str]] = {}
    caption = ""
    for line in start.splitlines():
        if line.startswith("## "):
            caption = line[3:].partition(":")[0]
        for match in _LINK.finditer(line):
            target = (Path("docs") / match["target"]).as_posix() if match["target"] else ""
            target = target.replace("docs/../", "")
            if target in found and not any(target in names for names in listed.values()):
                listed.setdefault(caption, []).append(target)
    below = {page for page in found if page.startswith("docs/guides/spark-errors/") or _large(page) != page}
    rest = sorted(set(found) - {START, *below} - {name for names in listed.values() for name in names})
    lines = [
        "# Holdfast",
        "",
        sentence,
        "",
        f"Start with the [README](README.md) or the [documentation]({START}).",
    ]
    trees = [_tree(caption, names, hidden=True) for caption, names in listed.items()]
    return "\n".join([*lines, *trees, _tree("More", [START, *rest], hidden=True)])


def stage(folder: Path, text: Pages) -> None:
    """Write the pages, and the files that they show, into a folder."""
    for path, page in text.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page, encoding="utf-8")
    shutil.copytree(ROOT / "docs/images", folder / "docs/images", dirs_exist_ok=True)
    for file in (ROOT / "docs/guides/notebook.ipynb", *(ROOT / "examples").rglob("*.py")):
        target = folder / _path(file)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


def build(target: Path, text: Pages | None = None, theme: str = "furo") -> list[str]:
    """Build the site; return its warnings, of which a broken link is one.

    Args:
        target: The folder of the site, replaced by it.
        text: The pages; by default all of them.
        theme: The theme of Sphinx.
    """
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    with tempfile.TemporaryDirectory() as work, patch_docutils(), docutils_namespace():
        source, output = Path(work, "source"), Path(work, "site")
        stage(source, pages() if text is None else text)
        warnings = io.StringIO()
        app = Sphinx(
            srcdir=str(source),
            confdir=None,
            outdir=str(output),
            doctreedir=str(Path(work, "doctrees")),
            buildername="html",
            confoverrides={
                "project": "Holdfast",
                "version": metadata.version("holdfast"),
                "extensions": ["myst_parser"],
                "root_doc": "index",
                "html_theme": theme,
                "html_title": "Holdfast",
                "html_copy_source": False,
                "html_show_copyright": False,
                "html_show_sphinx": False,
                "myst_heading_anchors": 6,
            },
            status=None,
            warning=warnings,
        )
        app.build()
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(output, target)
    return [line for line in _COLOR.sub("", warnings.getvalue()).splitlines() if line.strip()]


def main() -> int:
    """Build the site where the command line says, and print its warnings."""
    parser = argparse.ArgumentParser(description=build.__doc__)
    parser.add_argument("target", type=Path, nargs="?", default=ROOT / "build" / "site")
    target = parser.parse_args().target
    warnings = build(target)
    print(*warnings, sep="\n", end="\n" if warnings else "")
    print(f"{target / 'index.html'}: {sum(1 for _ in target.rglob('*.html'))} pages")
    return 1 if warnings else 0


if __name__ == "__main__":
    sys.exit(main())
