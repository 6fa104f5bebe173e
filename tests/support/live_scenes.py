"""What the verbs print that start Spark, serve or take their time: real processes, 80 columns.

`make output` writes it to `tests/golden/live_output`. What differs from run to run and from machine to
machine (durations, versions, ids, ports, processes) is written as one fixed word.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from unittest.mock import patch

from terminal import on_terminal

WRITTEN: Final = Path(__file__).resolve().parents[1] / "golden" / "live_output"
# As long as the folder in which the verbs run: where a line ends depends on it.
SHOWN: Final = "/data/streams-01"
JOB: Final = """import holdfast as hf


@hf.job(name="sums", checkpoint="sums", trigger="available now")
def sums(spark):
    events = spark.readStream.schema("customer string, amount long").json("in")
    return events.groupBy("customer").SIDE.writeStream.outputMode("update").format("noop")
"""
HISTORY: Final = """def warm(spark):
    return spark.read.schema("customer string, amount long").json("old")
"""
FIRST: Final = '{"customer": "ann", "amount": 3}\n{"customer": "bob", "amount": 4}\n'
LATER: Final = '{"customer": "ann", "amount": 5}\n'

# A file of the golden output, and what is typed for it. A group runs in its order, in one directory.
SCENES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "job": {
        "run": ("run sums.py --no-rest",),
        "check": ("check sums.py --against sums", "check counts.py --against sums"),
        "drill": ("drill saved --job sums.py",),
        "fork-compare": ("fork saved@first --compare counts.py --original sums.py",),
        "state-bootstrap": ("state bootstrap sums.py warm --from history.py",),
        "doctor": ("doctor sums",),
    },
    "tour": {"tour": ("tour toured --yes",)},
    "serve": {"serve": ("serve --port 0",)},
    "bench": {"bench": ("bench startup --runs 1",)},
    "demo": {"demo": ("demo",)},
}
# What a scene finds that no scene before it has left, as calls.
BEFORE: Final[Mapping[str, tuple[str, ...]]] = {"drill": ("savepoint take sums saved --label first",)}
# How long paths and versions are decides where the lines of these end.
FILLED: Final = ("doctor",)

# In this order: what is a part of something longer comes after it.
MASKS: Final = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "QUERY-ID"),
    (re.compile(r"\d{8}T\d{6}(\.\d{3}Z(-[0-9a-f]{8}-b\d+-[0-9a-f]{4})?)?"), "SAVEPOINT-ID"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(Z|[+-]\d\d)?"), "TIME"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:PORT"),
    (re.compile(r"\d+(\.\d+){2,}(?![\d.:])"), "VERSION"),
    (re.compile(r"\bpython3\.\d+"), "python3.N"),
    (re.compile(r"\bat\s+/\S+\s+\(from\s[^)]*\)"), "at JAVA-HOME"),
    (re.compile(r"\b\d+( cores run tasks)|(?<=shuffle\.partitions = )\d+"), r"N\1"),
    (re.compile(r"(driver|process) \d+"), r"\1 PID"),
    (re.compile(r"(--token |token=)\S+"), r"\1TOKEN"),
    (re.compile(r"\b\d[\d.,]* (ms|s|min|h)( \d+ (s|min))?\b"), "N s"),
    (re.compile(r"\b\d[\d.,]* (MB|KB|GB|bytes|rows/s)\b"), r"N \1"),
)
# In these lines of these scenes every number is of this run.
MEASURED: Final[Mapping[str, re.Pattern[str]]] = {
    "bench": re.compile(r"(?m)^(?!measuring|\$).*$"),
    "demo": re.compile(
        r"(?m)^(batches|drivers|state|savepoints|second savepoint|difference) .*$|^  c\d+ .*$"
    ),
}
NUMBER: Final = re.compile(r" *\b\d[\d.,]*(?= |$)|(?<=c)\d{4}")


def write_inputs(place: Path) -> None:
    """The jobs and their input."""
    (place / "sums.py").write_text(JOB.replace("SIDE", 'sum("amount")'))
    (place / "counts.py").write_text(JOB.replace("SIDE", "count()"))
    (place / "history.py").write_text(HISTORY)
    for folder in ("in", "old"):
        (place / folder).mkdir()
        (place / folder / "0.json").write_text(FIRST)


def printed(group: str, place: Path) -> dict[str, str]:
    """What the scenes of a group print, by the names of their files."""
    write_inputs(place)
    return {f"{name}.txt": _printed(name, lines, place) for name, lines in SCENES[group].items()}


@contextmanager
def folder_for_scenes() -> Iterator[Path]:
    """A directory whose name has one length on every machine, gone at the end; and one zone."""
    place = Path(tempfile.mkdtemp(prefix="hf-", dir="/tmp"))
    try:
        with patch.dict(os.environ, TZ="Europe/Berlin"):
            os.environ.pop("PYSPARK_PYTHON", None)  # a session in this process has set it
            yield place
    finally:
        shutil.rmtree(place)


def compared(file: str, text: str) -> list[str]:
    """What of a file is the same on every machine: its lines, or the words of those that are filled."""
    return text.split() if Path(file).stem in FILLED else text.splitlines()


def _printed(name: str, lines: tuple[str, ...], place: Path) -> str:
    for line in BEFORE.get(name, ()):
        seen = on_terminal(shlex.split(line), place, place / "home")
        assert seen.code == 0, seen.lines
        (place / "in" / "1.json").write_text(LATER)
    text = "\n".join(_said(line, place) for line in lines)
    measured = MEASURED.get(name)
    return text if measured is None else measured.sub(lambda line: NUMBER.sub(" N", line[0]), text)


def _said(line: str, place: Path) -> str:
    words = shlex.split(line)
    # A server is ended when it has said where it is.
    at = "http://" if words[0] == "serve" else None
    seen = on_terminal(words, place, place / "home", ended_at=at)
    # Each turn of a bar stands where the one before it stood; what stays is below it.
    kept = [line for line in seen.lines if "━" not in line]
    text = "\n".join(kept).replace(str(place), SHOWN).replace(str(Path(sys.prefix)), "/venv")
    for pattern, fixed in MASKS:
        text = pattern.sub(fixed, text)
    text = f"$ holdfast {line}\n{text}\n"
    return f"{text}(exit code {seen.code})\n" if seen.code else text


if __name__ == "__main__":
    shutil.rmtree(WRITTEN, ignore_errors=True)
    WRITTEN.mkdir()
    for group in SCENES:
        with folder_for_scenes() as folder:
            for file, text in printed(group, folder).items():
                (WRITTEN / file).write_text(text, encoding="utf-8")
