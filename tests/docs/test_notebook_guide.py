"""The notebook among the guides runs from top to bottom, cell by cell, as in Jupyter."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "guides" / "notebook.ipynb"


def shown(source: str, names: dict[str, Any]) -> str | None:
    """Run a cell, and return the HTML or text of the expression at its end."""
    tree = ast.parse(source)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, "cell", "exec"), names)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), "cell", "exec"), names)
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    html = getattr(value, "_repr_html_", None)
    return repr(value) if html is None else str(html())


def test_every_cell_runs_and_shows_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {"__name__": "__main__"}
    outputs = [shown("".join(cell["source"]), names) for cell in cells if cell["cell_type"] == "code"]
    first, *others = outputs
    assert first is None
    assert all(others)
    assert "Health" in str(others[0])
    assert not any(cell.get("outputs") for cell in cells)
