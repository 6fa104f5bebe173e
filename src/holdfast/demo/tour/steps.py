"""The steps of the tour, its files, and its results.

The checkpoint comes from the demo's query `visits`; `tests/golden/make_tour.py` creates it.
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
# The length of the time at the start of a savepoint's id, which is enough to name it.
_TIME: Final = len("20260305T080000.000Z")


@dataclass(frozen=True, slots=True)
class TourStep:
    """A step of the tour: a command and its purpose.

    Attributes:
        why: The purpose, in one sentence.
        command: The command line as typed; `fill_command` inserts the results of earlier steps.
        exit_code: The expected exit code.
        needs_sql: Whether the step, or a step on which it depends, needs the extra `sql`.
    """

    why: str
    command: str
    exit_code: int = 0
    needs_sql: bool = False


@dataclass(frozen=True, slots=True)
class Walked(JsonShape):
    """A completed step.

    Attributes:
        why: The purpose of the step.
        command: The command line that was run.
        exit_code: The exit code of the command.
        output: The standard output of the command.
    """

    why: str
    command: str
    exit_code: int
    output: str


@dataclass(frozen=True, slots=True)
class Toured(JsonShape):
    """A completed tour.

    Attributes:
        folder: The directory of the tour's files.
        steps: The steps in the order in which they ran.
        left_out: The number of steps skipped because the extra `sql` is not installed.
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
        "Spark counted them by day and customer. Check the checkpoint for damage.",
        "holdfast checkpoint verify checkpoint",
    ),
    TourStep("Show the checkpoint: batches, watermark, operators.", "holdfast checkpoint show checkpoint"),
    TourStep("List its states, with the columns of their keys.", "holdfast state list checkpoint"),
    TourStep(
        "Get one key of one state: the visits of ann. Count her lines above.",
        f"holdfast state get checkpoint aggregate {_ANN}",
    ),
    TourStep(
        "Show the batches that changed it. Use this if a count looks wrong.",
        f"holdfast state history checkpoint aggregate {_ANN}",
    ),
    TourStep(
        "Query all keys in SQL.",
        "holdfast state scan checkpoint"
        ' --sql "select customer, count from aggregate order by count desc, customer"',
        needs_sql=True,
    ),
    TourStep(
        "Take a savepoint, a permanent copy of the state. The query may run.",
        "holdfast savepoint take checkpoint savepoints --label tour",
    ),
    TourStep(
        "Edit the state: this creates a second savepoint; the first is unchanged.",
        "holdfast state edit {first} aggregate --set count=4"
        " --where \"customer = 'ann'\" --reason 'a12 was somebody else' --yes",
        needs_sql=True,
    ),
    TourStep(
        "Show what the edit changed, key by key.", "holdfast savepoint diff {first} {last}", needs_sql=True
    ),
    TourStep(
        "Undo the edit: this creates a third savepoint, with the state before it.",
        "holdfast state undo {last} --yes",
        needs_sql=True,
    ),
    TourStep(
        "Compare it with the first one: the state is the same.",
        "holdfast savepoint diff {first} {last}",
        needs_sql=True,
    ),
    TourStep(
        "Plan a restore: a new checkpoint from which the query continues.",
        "holdfast restore {first} restored --dry-run",
    ),
    TourStep(
        "Rescale: the same state in three partitions, in a new directory.",
        "holdfast rescale {first} rescaled --partitions 3",
    ),
    TourStep(
        "Damage a copy of the checkpoint: change one byte of one state file.",
        "cp -r checkpoint damaged && printf X | dd of={file} bs=1 seek=40 conv=notrunc status=none",
    ),
    TourStep(
        "verify names the damaged file and ends with exit code 6.",
        "holdfast checkpoint verify damaged",
        exit_code=6,
    ),
)


def unpack(folder: Path) -> None:
    """Unpack the arrivals and the checkpoint into an empty directory; on an error, empty it again."""
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
    """Insert the addresses of the first and the last savepoint, and the file to damage, into a command."""
    taken = sorted(path.name for path in (folder / "savepoints/savepoints").glob("*"))
    state = sorted((folder / "checkpoint/state/0/0").glob("5_*.changelog"))
    return command.format(
        first=f"savepoints/{taken[0][:_TIME]}" if taken else "",
        last=f"savepoints/{taken[-1][:_TIME]}" if taken else "",
        file=f"damaged/state/0/0/{state[0].name}",
    )
