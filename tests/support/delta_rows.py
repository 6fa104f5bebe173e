"""A Delta table read without Delta: its log is JSON, and its files are Parquet."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq


def commits(table: Path) -> list[list[dict[str, Any]]]:
    """The actions of each commit, oldest first. Of ten and more, Delta may have put the first ones aside."""
    files = sorted(file for file in (table / "_delta_log").glob("*.json") if file.stem.isdigit())
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


def rows(table: Path, *columns: str) -> Counter[tuple[Any, ...]]:
    """The rows of the newest version."""
    files: dict[str, None] = {}
    for actions in commits(table):
        for action in actions:
            if "remove" in action:
                files.pop(action["remove"]["path"], None)
        for action in actions:
            if "add" in action:
                assert action["add"].get("deletionVector") is None
                files[action["add"]["path"]] = None
    found: Counter[tuple[Any, ...]] = Counter()
    for name in files:
        read = pq.ParquetFile(table / unquote(name)).read().to_pylist()
        found.update(tuple(row.get(column) for column in columns) for row in read)
    return found


def batches(table: Path) -> list[tuple[str, int]]:
    """The query and the batch that each commit carries, oldest first."""
    return [
        (action["txn"]["appId"], int(action["txn"]["version"]))
        for actions in commits(table)
        for action in actions
        if "txn" in action
    ]


def operations(table: Path) -> list[str]:
    """What each commit did: `MERGE`, `UPDATE`, `OPTIMIZE` …"""
    return [
        action["commitInfo"]["operation"]
        for actions in commits(table)
        for action in actions
        if "commitInfo" in action
    ]
