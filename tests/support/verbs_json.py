"""The fields that verbs print with `--json`, from verbs that run without Spark over golden checkpoints."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import written_state
from typer.testing import CliRunner
from written_state import field_paths

from golden import golden_on_disk, input_folder
from holdfast.cli import app
from holdfast.jobs.state_home import StateHome, SupervisorLock

KEYED = "4.2/spread-format2"
JOB_FILE = """\
import holdfast as hf

@hf.job(name="till", checkpoint="till")
def till(spark):
    raise AssertionError("it is not built")
"""
LINTED = 'spark.readStream.table("visits").groupBy("customer").count()\n'


def fields_by_verb(folder: Path) -> dict[str, list[str]]:
    """Each verb with the fields of what it printed.

    Args:
        folder: Where `written_state.write` has made one of everything. The verbs change it.
    """
    golden_on_disk(KEYED, folder / "keyed")
    (folder / "job.py").write_text(JOB_FILE, encoding="utf-8")
    (folder / "linted.py").write_text(LINTED, encoding="utf-8")
    (folder / "damaged").mkdir()
    golden_on_disk(written_state.CHECKPOINT, folder / "damaged")
    (folder / "damaged" / "commits" / "11").write_text("nonsense")
    supervisor = SupervisorLock(StateHome(folder / "home-v2"), "shop")
    assert supervisor.take()
    try:
        with standing_in(folder):
            return {words: sorted(printed(words, folder)) for words in calls()}
    finally:
        supervisor.release()


@contextmanager
def standing_in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def calls() -> tuple[str, ...]:
    """What is called; later ones find what earlier ones have made. `SP` is the first savepoint."""
    return (
        "list --home home",
        "status shop --home home",
        "alerts list --home home",
        "alerts export",
        "alerts export --output out --dry-run",
        "stop shop --home home-v2 --dry-run",
        "cancel shop --home home-v2 --dry-run",
        "run job.py --dry-run",
        "init begun --dry-run",
        "doctor",
        "completion bash",
        "doctor checkpoint",
        "checkpoint show checkpoint",
        "checkpoint show keyed",
        "checkpoint history checkpoint",
        "checkpoint verify checkpoint",
        "checkpoint verify damaged",
        "savepoint take checkpoint new --dry-run",
        "savepoint take checkpoint new --deep",
        "savepoint list catalog",
        "savepoint show SP",
        "savepoint show EDITED",
        "savepoint verify SP --deep",
        "savepoint digest catalog --dry-run",
        "savepoint digest catalog",
        "savepoint label SP other",
        "savepoint diff SP EDITED",
        "savepoint diff SP EDITED --files",
        "savepoint delete PENDING --dry-run",
        "savepoint gc new --dry-run",
        "savepoint gc new",
        "restore SP made --dry-run",
        "restore SP made",
        "fork SP other --dry-run",
        "fork SP other",
        "state list checkpoint",
        "state list keyed",
        "state get checkpoint aggregate c1",
        "state get keyed visits c1",
        "state scan checkpoint aggregate --limit 1",
        "state history checkpoint aggregate c1",
        "state explain checkpoint aggregate c1",
        "state diff SP EDITED",
        "state edit SP aggregate --set count=3 --key c2 --dry-run",
        "state edit SP aggregate --set count=3 --key c2 --yes",
        "state undo EDITED --dry-run",
        "state undo EDITED --yes",
        "state erase new c3 --dry-run",
        "state erase new c3 --yes",
        "state migrate SP migrated --backend memory --dry-run",
        "state migrate SP migrated --backend memory",
        "offsets show checkpoint",
        "offsets skip checkpoint past --file file:///arrivals/bad.json --dry-run",
        "offsets skip SP past --file file:///arrivals/bad.json",
        "rescale checkpoint rescaled --partitions 3 --dry-run",
        "skew checkpoint",
        "cost checkpoint",
        "cost --rate 5000 --keys 1000000",
        "lint checkpoint",
        "lint linted.py",
        "advise keyed",
        "explain HF-E3001",
        "advise --rate 100 --keys 1000",
        "ttl keyed --what-if 24h",
    )


def printed(words: str, folder: Path) -> Iterator[str]:
    """The fields of each line of JSON that a call prints."""
    places = named_savepoints(folder)
    # The directory that the query has read has another name in each archive.
    arrivals = input_folder(written_state.CHECKPOINT)
    arguments = [places.get(word, word).replace("file:///arrivals", arrivals) for word in words.split()]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    found: set[str] = set()
    for line in result.stdout.splitlines():
        if line.startswith("{"):
            found.update(field_paths(json.loads(line)))
    if not found:
        raise AssertionError(f"{words} printed no JSON: {result.output} {result.exception!r}")
    yield from found


def named_savepoints(folder: Path) -> dict[str, str]:
    """Savepoints of the catalog by what they are called here."""
    from holdfast import savepoints

    names: dict[str, str] = {}
    for each in savepoints.list(folder / "catalog"):
        manifest = each.manifest
        assert manifest is not None
        if manifest.batch_id == 11 and not manifest.change:
            names.setdefault("SP", each.uri)
        elif manifest.change and manifest.change.get("back_to") is None:
            names.setdefault("EDITED", each.uri)
        elif manifest.batch_id == 10:
            names.setdefault("PENDING", each.uri)
    return names


__all__ = ["fields_by_verb"]
