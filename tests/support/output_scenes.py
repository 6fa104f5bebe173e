"""What the verbs print, over fixed checkpoints, savepoints and jobs; clock, zone and host are fixed.

`make output` writes it to `tests/golden/output`, a file a verb. Read what has changed before you commit it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import written_state
from cli_runner import run_cli
from written_state import BATCH, LEADER, RECOVERY

from golden import golden_files, input_folder, kafka_files
from holdfast.advice import evidence as advice_evidence
from holdfast.advice.checkpoint_checks import CheckpointLocation, Lasting
from holdfast.cli import next_step
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.state_home import StateHome, SupervisorLock
from holdfast.model import BatchProgress, TaskTimes
from holdfast.observe.alerting import AlertStore, evaluate
from holdfast.observe.metrics import sample

WRITTEN = Path(__file__).resolve().parents[1] / "golden" / "output"
# Friday, 2026-11-27 02:00 in Berlin.
NOW_MS = 1_795_741_200_000
# As long as the folder in which the verbs run: where a line ends depends on it.
SHOWN = "/data/streams-01"
USUAL = 80
WIDTHS = (40, USUAL, 200)

# The verbs in the order in which they run; what one makes, those below it find. `SP` stands for the newest
# savepoint, `FIRST` for the oldest.
# What stands for the directory that a query has read, which has another name in each archive.
ARRIVALS = "file:///arrivals"
SCENES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("holdfast", ("",)),
    ("doctor-checkpoint", ("doctor orders", "doctor torn")),
    ("checkpoint-show", ("checkpoint show orders", "checkpoint show joined", "checkpoint show keyed")),
    ("checkpoint-show-partitions", ("checkpoint show joined --by-partition",)),
    ("checkpoint-show-confs", ("checkpoint show orders --confs",)),
    ("checkpoint-history", ("checkpoint history orders", "checkpoint history joined --last 3")),
    ("checkpoint-verify", ("checkpoint verify orders", "checkpoint verify torn")),
    ("watch", ("watch orders --once", "checkpoint verify orders")),
    (
        "savepoint-take",
        ("savepoint take sums saved --dry-run", "savepoint take sums saved --label nightly"),
    ),
    ("savepoint-show", ("savepoint show SP --files",)),
    ("savepoint-verify", ("savepoint verify SP", "savepoint verify SP --deep", "doctor SP")),
    (
        "savepoint-digest",
        ("savepoint take sums saved --no-digest", "savepoint digest SP --dry-run", "savepoint digest SP"),
    ),
    ("savepoint-label", ("savepoint label SP before-release --dry-run", "savepoint label SP before-release")),
    (
        "state-edit",
        (
            "state edit SP --set count=1 --key c1 --dry-run",
            "state edit SP --set count=1 --key c1 --reason mistyped --yes",
            "savepoint show SP",
            "state undo SP --dry-run",
        ),
    ),
    ("savepoint-list", ("savepoint list saved", "savepoint list empty")),
    (
        "savepoint-diff",
        ("savepoint diff FIRST SP", "savepoint diff FIRST SP --files", "savepoint diff FIRST FIRST"),
    ),
    ("state-list", ("state list orders", "state list joined", "state list keyed", "state list windows")),
    ("state-get", ("state get orders c1", "state get keyed visits c1", "state get orders nobody")),
    (
        "state-scan",
        (
            "state scan orders --limit 3",
            "state scan windows --limit 3",
            "state scan keyed --limit 3",
            "state scan orders --where count>1000",
        ),
    ),
    ("state-history", ("state history orders c1",)),
    ("state-explain", ("state explain orders c1",)),
    ("state-diff", ("state diff orders@10 orders@11", "state diff FIRST SP")),
    ("state-erase", ("state erase saved c1 --dry-run",)),
    ("state-migrate", ("state migrate FIRST --backend memory --dry-run",)),
    ("ttl", ("ttl orders --what-if 1h", "ttl windows --watermark 1m", "ttl windows --what-if 1m")),
    ("cost", ("cost orders", "cost FIRST", "cost --rate 5000 --keys 1000000")),
    ("lint", ("lint job.py", "lint lost.py", "lint rocks", "lint orders")),
    (
        "advise",
        (
            "advise orders",
            "advise joined --topic memory,partitions --cores 8",
            "advise --rate 5000 --keys 1000000 --value-bytes 200 --latency 30s",
        ),
    ),
    ("skew", ("skew joined", "skew orders --top 3", "skew shop")),
    ("restore", ("restore FIRST again --dry-run", "restore FIRST again")),
    ("fork", ("fork FIRST other --dry-run", "fork FIRST other")),
    ("rescale", ("rescale FIRST --partitions 3 --dry-run", "rescale FIRST wider --partitions 3")),
    ("savepoint-delete", ("savepoint delete FIRST --dry-run", "savepoint gc saved --dry-run")),
    ("list", ("list", "list --home nobody")),
    ("status", ("status shop", "stop shop --dry-run", "restart shop --dry-run", "cancel shop --dry-run")),
    ("alerts", ("alerts list", "alerts list --home nobody", "alerts export --output rules")),
    ("run", ("run job.py --dry-run --no-rest",)),
    ("explain", ("explain HF-E3001", "explain HF102", "explain HF-E9")),
    ("upgrade", ("upgrade shop job.py --dry-run",)),
    (
        "short-verbs",
        ("show orders", "verify FIRST", "history orders c1", "migrate orders", "checkpoint orders"),
    ),
    ("check-spark", ("check-spark orders 4.3",)),
    ("help", ("help take", "--help", "help nothing")),
    ("init", ("init begun --dry-run", "init begun", "init begun")),
    (
        "offsets",
        (
            "offsets show topics",
            "offsets show orders",
            "offsets set topics rewound --at orders:0:12 --dry-run",
            """offsets set topics rewound --offset '{"orders":{"0":12,"2":5}}' --dry-run""",
            "offsets skip topics past --rows orders:1:2 --dry-run",
            f"offsets skip FIRST past --file {ARRIVALS}/bad.json",
            "offsets translate topics elsewhere --topic orders=dc2.orders --dry-run",
        ),
    ),
    ("apply", ("apply deployment.toml --dry-run", "apply deployment.toml nobody")),
    ("checkpoint-release", ("checkpoint release orders --dry-run",)),
    ("mirror", ("mirror orders elsewhere --once", "mirror orders elsewhere --once")),
)
# What differs each time: the end of a savepoint's id, and the id of a fork's query.
CHANCE = (
    (re.compile(r"(Z-[0-9a-f]{8}-b[0-9]+-)[0-9a-f]{4}"), r"\g<1>9d2e"),
    (
        re.compile(r"(\$ holdfast fork .*\n(?:(?!query ).*\n)*query )[-0-9a-f]{36}"),
        r"\g<1>1b240e2c-3d09-4873-9dbf-c8b198d73522",
    ),
)
# Those of several widths.
WIDE = ("cost", "lint", "checkpoint-history", "savepoint-list", "state-scan", "status")

CHECKPOINTS = {
    "orders": "4.2/aggregate-format2",
    "sums": "4.2/aggregate-memory",
    "torn": "4.2/aggregate-format2",
    "joined": "4.2/join-format2",
    "rocks": "4.2/aggregate-rocksdb",
    "keyed": "4.2/keyed-format2",
    "windows": "4.2/windowed-memory",
    "topics": "4.2/aggregate-memory",
}
JOB = """import holdfast as hf


@hf.job(name="visits", trigger="30 seconds", checkpoint=hf.Checkpoint("visits", retain=10))
def visits(spark):
    raise AssertionError("a dry run starts nothing")
"""
# One job is to be started; the other was started by an earlier release.
DEPLOYMENT = """[jobs.visits]
code = "job.py"
savepoint = "saved@nightly"

[jobs.shop]
code = "job.py"
"""
# What lint has something to say of.
LOST = """from pyspark.sql import functions as F

events = spark.readStream.format("kafka").option("failOnDataLoss", "false").load()
unique = events.withWatermark("timestamp", "1 hour").dropDuplicates(["key"])
counts = unique.groupBy("topic").count()  # holdfast: ignore[HF102] twelve topics
counts.writeStream.outputMode("update").format("delta").toTable("counts")
"""


def printed() -> dict[str, str]:
    """What every scene prints, by the name of its file."""
    with ExitStack() as stack:
        place = Path(tempfile.mkdtemp(prefix="hf-", dir="/tmp"))  # one length on every machine
        stack.callback(shutil.rmtree, place)
        stack.enter_context(same_each_time())
        stack.enter_context(set_up(place))
        stack.enter_context(written_state.counted_later())
        said: dict[str, str] = {}
        for name, commands in SCENES:
            for columns in WIDTHS if name in WIDE else (USUAL,):
                file = f"{name}.txt" if columns == USUAL else f"{name}-{columns}.txt"
                said[file] = "\n".join(_said(place, command, columns) for command in commands)
        return said


def _said(place: Path, command: str, columns: int) -> str:
    """A command as it is typed, then what stands on the terminal, then the exit code if it is not 0."""
    typed = command
    listed = sorted((place / "saved" / "savepoints").glob("*"))
    if listed:
        for word, savepoint in (("FIRST", listed[0]), ("SP", listed[-1])):
            command = command.replace(f" {word}", f" saved/{savepoint.name}")
            typed = typed.replace(f" {word}", f" saved/{savepoint.name[:15]}")
    command = command.replace(ARRIVALS, input_folder(CHECKPOINTS["sums"]))
    _Clock.at_ns += 600_000_000_000
    result = run_cli(
        shlex.split(command),
        folder=place,
        environ={
            "COLUMNS": str(columns),
            "HOLDFAST_HOME": str(place / "home"),
            "HOME": str(place),
            "LANG": "C.UTF-8",
            "PATH": os.environ["PATH"],
            "TZ": "Europe/Berlin",
            "USER": "ann",
            "LOGNAME": "ann",
        },
        timeout=60,
        given=None,
        together=True,
    )
    text = f"$ {f'holdfast {typed}'.rstrip()}\n{result.stdout}".replace(str(place), SHOWN)
    for pattern, fixed in CHANCE:
        text = pattern.sub(fixed, text)
    text = text.replace(input_folder(CHECKPOINTS["sums"]), ARRIVALS)
    return f"{text}(exit code {result.returncode})\n" if result.returncode else text


class _Clock:
    """It stands still, and goes on by ten minutes with each command."""

    at_ns = 0

    @classmethod
    def now_ns(cls) -> int:
        return cls.at_ns


@contextmanager
def same_each_time() -> Iterator[None]:
    """One clock, one host, and a person who looks on. Progress is in lines: a bar is gone at the end."""
    _Clock.at_ns = NOW_MS * 1_000_000
    with (
        patch.object(time, "time_ns", _Clock.now_ns),
        patch.object(socket, "gethostname", lambda: "app-1"),
        patch.object(next_step, "on_terminal", lambda: True),
        patch.object(
            advice_evidence,
            "place_of",
            lambda _: CheckpointLocation(Lasting.DISK, "on ext4, a local disk of this machine"),
        ),
    ):
        yield


def _batches() -> Iterator[BatchProgress]:
    """Batches of a job that has too many partitions and whose state grows, at an interval of two hours."""
    (operator,) = BATCH.operators
    for number in range(20):
        store = {**operator.store, "rocksdbSstFileSize": 2_000_000_000 + 100_000_000 * number}
        keyed = operator.keyed and replace(operator.keyed, added=12)
        rows = 20_000 + 10 * number
        yield replace(
            BATCH,
            batch_id=BATCH.batch_id + 1 + number,
            committed_ms=NOW_MS - (20 - number) * 7_200_000,
            duration_ms=1_200_000,
            interval_ms=7_200_000,
            cores=8,
            tasks=TaskTimes(1_100_000, 8_000_000, 150_000),
            operators=(replace(operator, rows=rows, partitions=200, store=store, keyed=keyed),),
        )


@contextmanager
def set_up(place: Path) -> Iterator[None]:
    """Checkpoints of several kinds, and the state home of a job that runs."""
    for name, golden in CHECKPOINTS.items():
        files = kafka_files(golden) if name == "topics" else golden_files(golden)
        for path, data in files.items():
            file = place / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            # What is of no batch is a day old; a batch is committed half a second after it was planned.
            written_s = NOW_MS / 1000 - 86_400
            if file.name.isdigit() and path.startswith(("offsets/", "commits/")):
                fields = json.loads(files[f"offsets/{file.name}"].split(b"\n")[1])
                written_s = fields["batchTimestampMs"] / 1000 + (0.5 if path.startswith("commits/") else 0)
            os.utime(file, (written_s, written_s))
    newest = max((place / "torn" / "state" / "0" / "0").glob("*.zip"), key=lambda file: file.stat().st_size)
    newest.write_bytes(newest.read_bytes()[:-20])
    (place / "empty" / "savepoints").mkdir(parents=True)
    (place / "job.py").write_text(JOB)
    (place / "lost.py").write_text(LOST)
    (place / "deployment.toml").write_text(DEPLOYMENT)
    home = StateHome(place / "home")
    written_state.write_registry(home.path)
    Registry(home.registry, LEADER.token).lead("shop", LEADER)
    Registry(home.registry).add_recovery("shop", RECOVERY)
    for batch in _batches():
        Registry(home.registry).add_batch("shop", 2, batch)
    standing, events = evaluate(
        [
            sample("holdfast_alert_threshold", 10.0, "shop", "state_size"),
            sample("holdfast_state_bytes", 12.0, "shop", "visits", "0 dedupe"),
        ],
        {},
        NOW_MS,
    )
    AlertStore(home.path).save("shop", NOW_MS, samples=(), totals={}, standing=standing, events=events)
    lock = SupervisorLock(home, "shop")
    assert lock.take()
    yield
    lock.release()


if __name__ == "__main__":
    shutil.rmtree(WRITTEN, ignore_errors=True)
    WRITTEN.mkdir()
    for file, text in printed().items():
        (WRITTEN / file).write_text(text, encoding="utf-8")
