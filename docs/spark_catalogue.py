"""Which Spark's checkpoints each verb was tried on, as a page; the tests go through the same list."""

from __future__ import annotations

from spark_matrix import CELLS, OPERATORS, PROVIDERS, SOME, VERBS, provider_of, query_of, version_of

_TEST = "tests/unit/checkpoints/test_every_spark.py"
_TEXT = f"""\
The verbs over files need no Spark, and read what any of these has written: small checkpoints of the same
queries and input, each made by that Spark itself (`tests/golden/make_plain.py`). A tick is a test that has
passed: `{_TEST}::test_a_verb[CHECKPOINT-VERB]`, such as
`test_a_verb[3.5/session-rocksdb-rescale]`. What the state must hold before and after is worked out in plain
Python. `make test` runs the checkpoints with a star; `make proof` runs all.

- `restore`, `rescale`, `state migrate`, `state edit` and `state erase` compare every row afterwards.
- `rescale` goes from two partitions to three, `state migrate` to five and from memory to RocksDB or back.
- Going on in the Spark that wrote the checkpoint is another test: `make services-sparks`, then
  `pytest tests/services/test_earlier_sparks_go_on.py`.
- Spark 4.0 with state format 2 writes snapshots of a version of its own (v2), which no later Spark writes.
  They are read, and what is written anew beside them has the same version, so that Spark 4.0 goes on. Where
  it has written none yet, it is told by what it lacks: the checksums beside changelogs that Spark 4.1 writes.
  A Spark 4.1 that is told not to write them is taken for 4.0.
- A state without keys has none to erase, hence `-`.
- Spark 3.4 and 3.5 note nothing of their operators. What an operator does is told by its stores and schemas;
  applyInPandasWithState keeps the same as flatMapGroupsWithState there, and is shown by that name.
- Each Spark has more than the one before: `dropDuplicatesWithinWatermark` and changelogs came with 3.5,
  `transformWithState` and the second state format with 4.0. The second format has no aggregation without
  keys and no `limit` here, since Spark 4.0 and 4.1 fail at these.
- State of another package's provider is refused by the provider's name.
"""


def sparks_page(note: str) -> str:
    """The page."""
    parts = ["# Sparks, operators and verbs\n", note, _TEXT]
    for version in sorted({version_of(name) for name in CELLS}):
        parts.append(f"## Spark {version}\n")
        parts.append("\n".join(_table([name for name in CELLS if version_of(name) == version])) + "\n")
    return "\n".join(parts)


def _table(names: list[str]) -> list[str]:
    rows = [
        f"| Operator | State in | Checkpoint | {' | '.join(f'`{verb}`' for verb in VERBS)} |",
        "|" + "---|" * (3 + len(VERBS)),
    ]
    order = [*OPERATORS], [*PROVIDERS]
    for name in sorted(
        names, key=lambda name: (order[0].index(query_of(name)), order[1].index(provider_of(name)))
    ):
        star = "*" if name in SOME else ""
        cells = ("-" if _nothing(name, verb) else "✓" for verb in VERBS)
        provider = PROVIDERS[provider_of(name)]
        rows.append(f"| {OPERATORS[query_of(name)]} | {provider} | `{name}`{star} | {' | '.join(cells)} |")
    return rows


def _nothing(name: str, verb: str) -> bool:
    return verb == "state erase" and query_of(name) in ("global", "limit")
