"""Write the reference page of the Spark versions and operators that each command was tested with.

The tests use the same list.
"""

from __future__ import annotations

from passed_tests import CHECKPOINTS, recorded
from spark_matrix import CELLS, OPERATORS, PROVIDERS, SOME, VERBS, provider_of, query_of, version_of

from holdfast.checkpoints.naming import RELEASES
from holdfast.config.spark_defects import SPARK_DEFECTS, Damage
from holdfast.savepoints.spark_upgrade import TESTED

_TEXT = f"""\
The commands over files need no Spark, and read the checkpoints of every version below. Each checkpoint is
small, has the same queries and input, and was written by that Spark version itself
(`tests/golden/make_plain.py`). A tick is a test that passes:
`{CHECKPOINTS}[CHECKPOINT-VERB]`,
such as `test_a_verb[3.5/session-rocksdb-rescale]`.
The expected state before and after is computed in plain Python. CI runs the checkpoints with a star on each
change, `make proof` all; [Places](../proof/places.md) has the day and the commit on which all of a version
passed. A dot is a test of `make proof` whose version is not recorded there.

- `restore`, `rescale`, `state migrate`, `state edit` and `state erase` compare every row afterwards.
- `rescale` goes from two partitions to three, `state migrate` to five and between memory and RocksDB.
- Whether the Spark version that wrote a checkpoint can continue from it afterwards is a different test:
  `make services-sparks`, then `pytest tests/services/test_earlier_sparks_go_on.py`.
- Spark 4.0 with state format 2 writes snapshots in a version (v2) that no later Spark writes. Holdfast reads
  them and writes new snapshots in the same version, so that Spark 4.0 can continue. If a checkpoint has no
  snapshot yet, Holdfast recognizes Spark 4.0 by the missing changelog checksums, which Spark 4.1 writes. A
  Spark 4.1 that is configured not to write them is taken for 4.0.
- State without keys has none to erase, hence `-`.
- Checkpoints of Spark 3.4 and 3.5 do not record operator names, so Holdfast infers the operator from its
  stores and schemas. There, applyInPandasWithState has the same state as flatMapGroupsWithState and is shown
  by that name.
- `dropDuplicatesWithinWatermark` and changelogs require Spark 3.5, `transformWithState` and state format 2
  Spark 4.0. For format 2 there is no test of aggregation without keys and of `limit` in Spark 4.0, because
  both fail there.
- "Named sources and sink" is the checkpoint of a query whose sources and sink have names: version 2 of the
  offset log, and version 3 of the commit log. Spark has both since 4.2. Join state has format 2 by default;
  formats 3 and 4 keep a join in one store, and require RocksDB.
- State of a third-party provider is refused with the provider's name.
"""


_UPGRADE = "tests/services/test_spark_upgrades.py::test_a_newer_spark_goes_on_as_the_older_one_would_have"
_PAIRS = f"""\
## From one Spark to another

`holdfast check-spark` gives its verdict for all pairs of versions. The long form of
`{_UPGRADE}`
tries the pairs with a tick or a dot: the older Spark runs every query of this page for six batches, Holdfast
takes and restores a savepoint of each, the newer Spark continues, and each further batch must be what the
older one puts out. It does so for state in memory, RocksDB with and without changelogs, state format 2, and
named sources and sinks, as far as the older version has them. A tick is a pair whose tests are all in
[Places](../proof/places.md).
"""


def _pairs() -> str:
    head = [f"| From | {' | '.join(RELEASES[1:])} |", "|" + "---|" * len(RELEASES)]
    rows = [
        f"| {older} | {' | '.join(_pair(older, newer) for newer in RELEASES[1:])} |"
        for older in RELEASES[:-1]
    ]
    return "\n".join([_PAIRS, *head, *rows, ""])


def _pair(older: str, newer: str) -> str:
    if (older, newer) not in TESTED:
        return ""
    providers = {provider_of(name) for name in CELLS if version_of(name) == older}
    tests = {f"{_UPGRADE}[{older}-{newer}-{provider}]" for provider in providers}
    return "✓" if tests <= recorded().keys() else "·"


_DEFECTS = """\
## Defects of Spark's state store

Known defects of RocksDB as Spark's state store, with the releases that have them, as read from the sources of
each release from 3.4.0 to 4.2.0 and from the classes of the last release of each line. SPARK-52637 is not
fixed in any release of Spark 4.0. `holdfast lint` reports a program with its installed pyspark as
[HF315](lint.md#hf315-spark-with-defects), and a checkpoint as
[HF605](lint.md#hf605-written-by-defective-spark). `holdfast checkpoint verify`, `holdfast doctor` and
`holdfast savepoint verify` find a snapshot with a wrong or missing data file, and name the defect if the
Spark that wrote the checkpoint has it.
"""
_LEFT = {
    Damage.MIXED: "a snapshot that RocksDB refuses: `Mismatch in unique ID on table file`, or"
    " `Sst file size mismatch`",
    Damage.DELETED: "a snapshot whose data file is missing: `FileNotFoundException`",
    Damage.WRONG: "a batch with a wrong state, or without its state file",
    Damage.NONE: "nothing; the task fails with `STATE_STORE_INVALID_STAMP`, and a retry succeeds",
}


def sparks_page(note: str) -> str:
    """Return the page."""
    parts = ["# Spark versions, operators and commands\n", note, _TEXT, _pairs(), _defects()]
    for version in sorted({version_of(name) for name in CELLS}):
        parts.append(f"## Spark {version}\n")
        parts.append("\n".join(_table([name for name in CELLS if version_of(name) == version])) + "\n")
    return "\n".join(parts)


def _defects() -> str:
    rows = [
        "| Issue | Spark | Only with changelogs | What happens | What it leaves |",
        "|---|---|---|---|---|",
    ]
    for each in SPARK_DEFECTS:
        only = "yes" if each.changelogs else "no"
        url = f"https://github.com/{each.change.replace('#', '/pull/')}"
        rows.append(
            f"| [{each.issue}]({url}) | {each.releases} | {only} | {each.text} | {_LEFT[each.damage]} |"
        )
    return "\n".join([_DEFECTS, *rows, ""])


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
        tick = "✓" if star or f"{CHECKPOINTS}[{version_of(name)}]" in recorded() else "·"
        cells = ("-" if _nothing(name, verb) else tick for verb in VERBS)
        provider = PROVIDERS[provider_of(name)]
        rows.append(f"| {OPERATORS[query_of(name)]} | {provider} | `{name}`{star} | {' | '.join(cells)} |")
    return rows


def _nothing(name: str, verb: str) -> bool:
    return verb == "state erase" and query_of(name) in ("global", "limit")
