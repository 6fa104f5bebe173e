"""Fuzz every reader of bytes for some time, and write down what happened: `make fuzz MINUTES=60`.

Each reader runs in a process of its own, one after the other, for an equal share of the time, in an order
drawn by the seed. Atheris changes
the inputs guided by the branches that they reach, from the golden files and from what earlier runs found,
which is kept in `.fuzz`; every other share uses the seeded changes of `hostile`, which know what files are
made of. An input fails if its reader raises an error that is not Holdfast's own, or takes too long or too
much memory. Failing inputs are kept in `.fuzz/failed`.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import os
import platform
import random
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final, NoReturn

from proof_report import kept_by_hand

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = ROOT / ".fuzz"
REPORT: Final = ROOT / "docs" / "proof" / "fuzz.md"
# What one input may take.
SECONDS: Final = 60
MEMORY_MB: Final = 2048
LARGEST: Final = 1 << 15
_PACKAGES: Final = ("holdfast", "atheris", "pyarrow", "msgspec")


@dataclass(frozen=True)
class Outcome:
    """What fuzzing one reader came to.

    Attributes:
        name: The reader.
        inputs: The number of inputs.
        seconds: The time it took.
        edges: The number of branches reached, with Atheris.
        failure: The last lines about the input that failed; None if none did.
    """

    name: str
    inputs: int
    seconds: float
    edges: int | None
    failure: str | None


def main() -> int:
    """Fuzz all readers, or those that are named, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", default="", help="a part of the names of readers")
    given = parser.parse_args()
    guided = _has_atheris()
    readers = formats(guided=guided)
    names = [name for name in readers if given.only in name]
    random.Random(given.seed).shuffle(names)
    _say(f"seed {given.seed}, {len(names)} readers, {'Atheris' if guided else 'seeded changes only'}")
    began = datetime.now(timezone.utc)
    ways = (True, False) if guided else (False,)
    share = given.minutes * 60 / len(names) / len(ways)
    outcomes: list[Outcome] = []
    for number, name in enumerate(names):
        for way in ways:
            outcomes.append(_in_own_process(readers[name], name, share, given.seed, guided=way))
            last = outcomes[-1]
            _say(f"{name}: {last.inputs:,} inputs, {last.failure or 'no failure'}")
        if not given.only:
            page = _rendered(outcomes, names[number + 1 :], began, given.minutes, given.seed)
            REPORT.parent.mkdir(exist_ok=True)
            REPORT.write_text(page, encoding="utf-8")
    return int(any(outcome.failure for outcome in outcomes))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def formats(*, guided: bool) -> dict[str, Callable[[], Any]]:
    """Return every reader of bytes that the tests know, by name; Atheris sees the branches of guided ones."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "support")]
    watched: Any = nullcontext()
    if guided:
        import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]

        watched = atheris.instrument_imports(include=["holdfast"])
    with watched:
        import file_formats
        import note_formats
    return {**file_formats.FORMATS, **note_formats.FORMATS}


def _has_atheris() -> bool:
    try:
        importlib.metadata.version("atheris")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _in_own_process(
    made: Callable[[], Any], name: str, seconds: float, seed: int, *, guided: bool
) -> Outcome:
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            _end_with(lambda: (_guided if guided else _seeded)(made(), seconds, seed))
        _, status = os.waitpid(child, 0)
        output.seek(0)
        text = output.read().decode(errors="replace")
    counts = re.findall(r"^(?:#|stat::number_of_executed_units: |inputs )(\d+)", text, re.MULTILINE)
    edges = re.findall(r"cov: (\d+)", text)
    failure = None
    if status:
        lines = [line for line in text.splitlines() if line.strip()]
        errors = [line for line in lines if "Error" in line or "ERROR" in line or "failing input" in line]
        failure = "; ".join((errors or lines)[-4:])[:600]
    return Outcome(
        f"{name}{', guided' if guided else ''}",
        max(map(int, counts), default=0),
        time.monotonic() - began,
        int(edges[-1]) if edges else None,
        failure,
    )


def _end_with(fuzz: Callable[[], int]) -> NoReturn:
    try:
        code = fuzz()
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _seeded(format_: Any, seconds: float, seed: int) -> int:
    import hostile

    until, number, before = time.monotonic() + seconds, 0, hostile.peak()
    inputs = hostile.hostile(format_.files, f"{format_.name} {seed}", 1 << 40)
    while time.monotonic() < until:
        data = next(inputs)
        number += 1
        with _kept_if_failing(format_.name, data):
            with hostile._deadline():
                _answered(format_, data)
            if hostile.peak() - before > MEMORY_MB << 20:
                raise MemoryError(f"{hostile.peak() - before:,} bytes")
    _say(f"inputs {number}")
    return 0


def _guided(format_: Any, seconds: float, seed: int) -> int:
    import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]

    corpus = KEPT / "corpus" / _file_name(format_.name)
    corpus.mkdir(parents=True, exist_ok=True)
    failed = KEPT / "failed"
    failed.mkdir(exist_ok=True)
    for data in format_.files:
        (corpus / hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)
    options = [
        f"-max_total_time={max(int(seconds), 1)}",
        f"-timeout={SECONDS}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-max_len={LARGEST}",
        f"-seed={seed & 0x7FFFFFFF or 1}",
        "-print_final_stats=1",
        f"-artifact_prefix={failed}/{_file_name(format_.name)}-",
    ]

    def answered(data: bytes) -> None:
        with _kept_if_failing(format_.name, data):
            _answered(format_, data)

    atheris.Setup([sys.argv[0], *options, str(corpus)], answered)
    atheris.Fuzz()  # it ends the process
    return 0


def _answered(format_: Any, data: bytes) -> None:
    from holdfast.errors import HoldfastError

    try:
        format_.parse(data)
    except HoldfastError as error:
        str(error).encode()  # it can be shown


@contextmanager
def _kept_if_failing(name: str, data: bytes) -> Iterator[None]:
    try:
        yield
    except BaseException:
        folder = KEPT / "failed"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{_file_name(name)}-{hashlib.sha1(data, usedforsecurity=False).hexdigest()}"
        path.write_bytes(data)
        _say(f"failing input: {path}")
        raise


def _file_name(name: str) -> str:
    return re.sub(r"\W+", "-", name)


def _rendered(outcomes: list[Outcome], left: list[str], began: datetime, minutes: float, seed: int) -> str:
    from proof_report import _commit, _machine

    installed = {one.metadata["Name"]: one.version for one in importlib.metadata.distributions()}
    versions = [f"Python {platform.python_version()}"]
    versions += [f"{name} {installed.get(name, 'is not installed')}" for name in _PACKAGES]
    failures = [outcome for outcome in outcomes if outcome.failure]
    lines = [
        "# Fuzz",
        "",
        f"`make fuzz MINUTES={minutes:g} SEED={seed}` wrote this page. Every reader of bytes gives a",
        f"value or an error of Holdfast's, within {SECONDS} seconds and {MEMORY_MB} MB. A reader has two",
        "rows: seeded changes of real files, and changes that Atheris guides by the branches they reach.",
        "",
        "| | |",
        "|---|---|",
        f"| begun | {began:%Y-%m-%d %H:%M} UTC |",
        f"| commit | {_commit()} |",
        f"| machine | {_machine()} |",
        f"| versions | {'; '.join(versions)} |",
        f"| inputs | {sum(outcome.inputs for outcome in outcomes):,} |",
        f"| time | {sum(outcome.seconds for outcome in outcomes) / 60:.1f} min |",
        f"| failures | {len(failures)} |",
        f"| not run | {', '.join(left) or 'nothing'} |",
        "",
        "| Reader | Inputs | Seconds | Branches | Outcome |",
        "|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        what = f"`{outcome.failure}`" if outcome.failure else "no failure"
        numbers = f"{outcome.inputs:,} | {outcome.seconds:.0f} | {outcome.edges or ''}"
        lines.append(f"| {outcome.name} | {numbers} | {what} |")
    return "\n".join(lines) + "\n" + kept_by_hand(REPORT, "Found and repaired")


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
