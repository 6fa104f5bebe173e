"""Queries of Spark 3.4 to 4.1 go on from a savepoint, restored and rescaled, in the Spark that wrote them.

What they must put out is what the same Spark puts out where nobody has interrupted it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from other_sparks import Runs, read_output

from holdfast import savepoints

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "golden"))

from golden_queries import PROVIDERS, write_input  # noqa: E402 - it is beside the goldens
from make_plain import QUERIES, names_for  # noqa: E402 - as above

VERSIONS = ("3.4", "3.5", "4.0", "4.1")
BEFORE, AFTER = range(6), range(6, 10)


@pytest.mark.spark
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("version", VERSIONS)
def test_queries_go_on_as_those_that_were_not_interrupted(
    version: str, provider: str, tmp_path: Path
) -> None:
    names = names_for(tuple(map(int, version.split("."))))
    queries = [query for query in QUERIES if f"{query}-{provider}" in names]
    if not queries:
        pytest.skip(f"Spark {version} has no such state")
    runs = Runs(version, provider, tmp_path)
    write_input(tmp_path / "input", BEFORE)
    for query in queries:
        runs.add(query, tmp_path / "ck" / query, "first")
    runs.work_off()

    write_input(tmp_path / "input", AFTER)
    outputs = {}
    for query in queries:
        checkpoint, restored, rescaled = (tmp_path / kind / query for kind in ("ck", "restored", "rescaled"))
        taken = savepoints.take(checkpoint, tmp_path / "sp", home=tmp_path / "home")
        assert savepoints.verify(taken.uri, deep=True).ok
        savepoints.restore(taken.uri, restored)
        if query != "stateless":
            savepoints.rescale(taken.uri, rescaled, partitions=3)
        outputs[query] = (
            runs.add(query, checkpoint, "uninterrupted"),
            runs.add(query, restored, "after_restore"),
            None if query == "stateless" else runs.add(query, rescaled, "after_rescale"),
        )
    runs.work_off()

    for query, (uninterrupted, after_restore, after_rescale) in outputs.items():
        expected = read_output(uninterrupted)
        assert len(expected) >= len(AFTER), query
        assert read_output(after_restore) == expected, query
        if after_rescale is None:
            continue
        # The batch that moved the state has a number of its own, and reads nothing.
        moved = int(query not in ("global", "limit"))
        found = read_output(after_rescale)
        assert {batch - moved: rows for batch, rows in found.items()} == expected, query
