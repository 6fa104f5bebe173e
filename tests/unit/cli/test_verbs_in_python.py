"""Each verb's public function returns what the verb prints with `--json`."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import output_scenes
import pytest
import written_state
from cli_runner import run_cli

import holdfast as hf

READ = hf.checkpoints.read


def dry(plan: Any) -> dict[str, Any]:
    """A plan as verbs print it."""
    return {"dry_run": True, **plan.as_dict()}


def first() -> str:
    (savepoint,) = Path("saved/savepoints").iterdir()
    return f"saved/{savepoint.name}"


def listed(name: str, values: Any) -> dict[str, Any]:
    return {name: [value.as_dict() for value in values]}


# `SP` stands for the savepoint of `sums`.
SAME: dict[str, Callable[[], Any]] = {
    "checkpoint show orders": lambda: READ("orders").as_dict(),
    "checkpoint show keyed": lambda: READ("keyed").as_dict(),
    "checkpoint verify joined": lambda: hf.checkpoints.verify("joined").as_dict(),
    "savepoint take orders other --dry-run": lambda: dry(hf.savepoints.plan_take("orders", "other")),
    "savepoint list saved": lambda: listed("savepoints", hf.savepoints.list("saved")),
    "savepoint verify SP --deep": lambda: hf.savepoints.verify(first(), deep=True).as_dict(),
    "savepoint diff SP orders": lambda: hf.savepoints.diff(first(), "orders").as_dict(),
    "savepoint diff SP orders --samples 1": lambda: hf.savepoints.diff(
        first(), "orders", samples=1
    ).as_dict(),
    "savepoint diff SP SP --files": lambda: hf.savepoints.diff_files(first(), first()).as_dict(),
    "savepoint delete SP --dry-run": lambda: dry(hf.savepoints.plan_delete(first())),
    "savepoint gc saved --dry-run": lambda: dry(hf.savepoints.plan_gc("saved")),
    "restore SP new --dry-run": lambda: dry(hf.savepoints.plan_restore(first(), "new")),
    "fork SP new --dry-run": lambda: dry(hf.savepoints.plan_fork(first(), "new")),
    "rescale SP new --partitions 3 --dry-run": lambda: dry(
        hf.savepoints.plan_rescale(first(), "new", partitions=3)
    ),
    "state migrate SP new --backend rocksdb --dry-run": lambda: dry(
        hf.plan_migrate(first(), "new", backend="rocksdb")
    ),
    "state get orders c1": lambda: hf.state("orders").get("", "c1").as_dict(),
    "state get keyed visits c1": lambda: hf.state("keyed").get("visits", "c1").as_dict(),
    "state history orders c1": lambda: hf.state("orders").history("", "c1").as_dict(),
    "state explain orders c1": lambda: hf.state("orders").explain("", "c1").as_dict(),
    "state edit SP --set count=1 --key c1 --dry-run": lambda: dry(
        hf.plan_edit(first(), "", set={"count": 1}, key="c1")
    ),
    "state erase saved c1 --dry-run": lambda: dry(hf.plan_erase("c1", everywhere="saved")),
    "ttl windows --watermark 1m": lambda: {
        "batch_id": hf.state("windows").batch,
        "ttl_ms": None,
        "watermark_ms": 60_000,
        **listed("states", hf.state("windows").what_if(watermark="1m")),
    },
    "cost orders": lambda: hf.cost("orders").as_dict(),
    "cost --rate 5000 --keys 1000000": lambda: hf.forecast_cost(rate=5000, keys=1_000_000).as_dict(),
    "advise joined --topic memory,partitions --cores 8": lambda: hf.advise(
        "joined", topics=["memory", "partitions"], cores=8
    ).as_dict(),
    "check --spark 4.3 orders": lambda: hf.check_spark("orders", "4.3").as_dict(),
    "offsets show topics": lambda: hf.offsets("topics").as_dict(),
    "offsets set topics new --at orders:0:12 --dry-run": lambda: dry(
        hf.plan_offsets("topics", "new", changes=[hf.ToRecord("orders", 0, 12)])
    ),
    "offsets translate topics new --topic orders=dc2 --dry-run": lambda: dry(
        hf.plan_offsets("topics", "new", changes=[hf.RenameTopic("orders", "dc2")])
    ),
    "list": lambda: listed("jobs", hf.jobs.list()),
    "status shop": lambda: hf.jobs.status("shop").as_dict(),
    "alerts list": lambda: hf.jobs.alerts().as_dict(),
    "alerts list shop --last 1": lambda: hf.jobs.alerts("shop", last=1).as_dict(),
    "stop shop --dry-run": lambda: dry(hf.jobs.plan_stop("shop")),
    "stop shop --savepoint saved --dry-run": lambda: dry(hf.jobs.plan_stop("shop", savepoint="saved")),
    "cancel shop --dry-run": lambda: dry(hf.jobs.plan_cancel("shop")),
}


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Checkpoints, a catalog with one savepoint and a job that runs; the clock stands still."""
    before = Path.cwd()
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="hf-"))
        stack.callback(shutil.rmtree, folder)
        stack.enter_context(output_scenes.same_each_time())
        stack.enter_context(output_scenes.set_up(folder))
        stack.enter_context(written_state.counted_later())
        hf.savepoints.take(folder / "sums", folder / "saved", label="nightly")
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("HOLDFAST_HOME", str(folder / "home"))
        stack.callback(os.chdir, before)
        os.chdir(folder)
        yield folder


@pytest.mark.parametrize("command", SAME)
def test_a_verb_prints_what_its_function_returns(command: str, place: Path) -> None:
    words = [first() if word == "SP" else word for word in shlex.split(command)]
    environ = {"HOME": str(place), "HOLDFAST_HOME": str(place / "home"), "PATH": os.environ["PATH"]}
    result = run_cli(
        [*words, "--json"], folder=place, environ=environ, timeout=60, given=None, together=False
    )
    assert result.returncode == 0, result.stderr
    printed, returned = json.loads(result.stdout), json.loads(json.dumps(SAME[command](), allow_nan=False))
    if words[0] == "fork":  # whose query gets an id of its own
        del printed["query_id"], returned["query_id"]
    assert printed == returned
