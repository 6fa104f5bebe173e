"""The steps of the tour, the files that they go over, and what came of them.

The checkpoint is one that the demo's query `visits` has left; `tests/golden/make_tour.py` makes it.
"""

from __future__ import annotations

import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.json_shapes import JsonShape

_PACKED: Final = Path(__file__).parent / "coffee-shop.tar.xz"
_ANN: Final = "'2026-03-05 00:00,ann'"
# The time of a savepoint, with which its id begins, is enough to name it.
_TIME: Final = len("20260305T080000.000Z")


@dataclass(frozen=True, slots=True)
class TourStep:
    """A command and why one would type it.

    Attributes:
        why: One sentence.
        command: The line as it is typed; `named` fills in what earlier steps have made.
        exit_code: What it ends with.
        needs_sql: Whether it needs the extra `sql`, or continues from a step that does.
    """

    why: str
    command: str
    exit_code: int = 0
    needs_sql: bool = False


@dataclass(frozen=True, slots=True)
class Walked(JsonShape):
    """A step that was run.

    Attributes:
        why: What the step is for.
        command: The line that was run.
        exit_code: What it ended with.
        output: What it printed on standard output.
    """

    why: str
    command: str
    exit_code: int
    output: str


@dataclass(frozen=True, slots=True)
class Toured(JsonShape):
    """The whole tour.

    Attributes:
        folder: Where its files are.
        steps: The steps that were run, in their order.
        left_out: How many need the extra `sql`, which is not installed.
    """

    folder: str
    steps: tuple[Walked, ...]
    left_out: int


STEPS: Final = (
    TourStep(
        "The input: arrivals. a05 and a12 come twice, the second a02 is too late.",
        "cat arrivals/0.json arrivals/1.json arrivals/2.json arrivals/3.json",
    ),
    TourStep(
        "Spark has counted them by day and customer. Is the checkpoint whole?",
        "holdfast checkpoint verify checkpoint",
    ),
    TourStep("What is in it: batches, watermark, operators.", "holdfast checkpoint show checkpoint"),
    TourStep("Which states there are, with the columns of their keys.", "holdfast state list checkpoint"),
    TourStep(
        "One key of one state: how often was ann here? Count her lines above.",
        f"holdfast state get checkpoint aggregate {_ANN}",
    ),
    TourStep(
        "Which batches changed it: ask this when a count looks wrong.",
        f"holdfast state history checkpoint aggregate {_ANN}",
    ),
    TourStep(
        "All keys, in SQL.",
        "holdfast state scan checkpoint"
        ' --sql "select customer, count from aggregate order by count desc, customer"',
        needs_sql=True,
    ),
    TourStep(
        "A savepoint keeps this state for good; the query may run meanwhile.",
        "holdfast savepoint take checkpoint savepoints --label tour",
    ),
    TourStep(
        "An edit makes a second savepoint; what it is made from stays as it is.",
        "holdfast state edit {first} aggregate --set count=4"
        " --where \"customer = 'ann'\" --why 'a12 was somebody else' --yes",
        needs_sql=True,
    ),
    TourStep(
        "What the edit has changed, key by key.", "holdfast savepoint diff {first} {last}", needs_sql=True
    ),
    TourStep(
        "Undo makes a third savepoint, with the state from before the edit.",
        "holdfast state undo {last} --yes",
        needs_sql=True,
    ),
    TourStep(
        "It is the state of the first one again.", "holdfast savepoint diff {first} {last}", needs_sql=True
    ),
    TourStep(
        "What a restore would make: a checkpoint from which the query goes on.",
        "holdfast restore {first} restored --dry-run",
    ),
    TourStep(
        "The same state in three partitions instead of two, in a new directory.",
        "holdfast rescale {first} rescaled --partitions 3",
    ),
    TourStep(
        "Now damage: one byte of one state file, in a copy of the checkpoint.",
        "cp -r checkpoint damaged && printf X | dd of={file} bs=1 seek=40 conv=notrunc status=none",
    ),
    TourStep(
        "verify names the file, and ends with exit code 6.", "holdfast checkpoint verify damaged", exit_code=6
    ),
)


def unpack(folder: Path) -> None:
    """Put the arrivals and the checkpoint into a directory that exists and empty; all or nothing."""
    try:
        _unpack(folder)
    except BaseException:
        for path in folder.iterdir():
            shutil.rmtree(path, ignore_errors=True)
        raise


def _unpack(folder: Path) -> None:
    with tarfile.open(_PACKED) as archive:
        for member in archive:
            packed = archive.extractfile(member)
            if packed is not None:
                target = folder / member.name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(packed.read())


def fill_command(command: str, folder: Path) -> str:
    """A step's command with the names of what there is: first and last savepoint, the file to damage."""
    taken = sorted(path.name for path in (folder / "savepoints/savepoints").glob("*"))
    state = sorted((folder / "checkpoint/state/0/0").glob("5_*.changelog"))
    return command.format(
        first=f"savepoints/{taken[0][:_TIME]}" if taken else "",
        last=f"savepoints/{taken[-1][:_TIME]}" if taken else "",
        file=f"damaged/state/0/0/{state[0].name}",
    )
