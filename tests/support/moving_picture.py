"""The moving picture of the README: a real job whose driver is killed, as an SVG that plays.

    python tests/support/moving_picture.py

The upper half is the terminal of `holdfast run`, the lower half a second one. Around the kill, up to the
second batch after it, the picture has the times of the run; then it gives the reader time to read.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from html import escape
from itertools import count
from pathlib import Path
from typing import IO, Final, NamedTuple

from command import PROGRAM, environment
from terminals import SHOWN_FOLDER

PICTURE: Final = Path(__file__).parents[2] / "docs" / "images" / "recovery.svg"
JOB: Final = """\
import holdfast as hf


class Visits(hf.Keyed):
    visits = hf.value(int, default=0)
    spent = hf.reducing(int, hf.add)

    def on_event(self, event, state, ctx):
        state.visits += 1
        state.spent.add(event.cents)

    def on_end(self, state, ctx):
        yield ctx.key.customer, state.visits, state.spent.get()


@hf.job(name="visits", checkpoint="checkpoint", trigger="1 second", standby=True)
def visits(spark):
    orders = spark.readStream.schema("customer string, cents long").json("orders")
    output = "customer string, visits long, cents long"
    counted = hf.keyed(orders, by="customer").process(Visits(), output=output, name="visits")
    return hf.sink(counted).upsert("visits", keys=["customer"], ledger="visits.db")
"""
CUSTOMERS: Final = ("ann", "bob", "cyd")
PATIENCE_S: Final = 300
UPPER, LOWER, WIDTH = 9, 18, 84
OPENING_S: Final = 3.0
READING_S: Final = 4.0

_BATCH: Final = re.compile(r"batch (\d+): ")
_STANDBY: Final = re.compile(r"a standby driver is (ready)")
_RECOVERED: Final = re.compile(r"recovered in ([\d.]+ s)")
_DRIVER: Final = re.compile(r"driver (\d+) is starting")


class Line(NamedTuple):
    """A line of one terminal, and when it came."""

    at: float
    upper: bool
    text: str


class Recording:
    """Two terminals in a directory, and what they show."""

    def __init__(self, folder: Path) -> None:
        self.lines: list[Line] = []
        self._folder = folder
        self._environ = {**environment(folder / ".holdfast"), "COLUMNS": str(WIDTH)}
        self._over = threading.Event()
        (folder / "visits.py").write_text(JOB)
        (folder / "orders").mkdir()

    def start(self) -> subprocess.Popen[str]:
        """Run the job in the upper terminal; orders come several times a second."""
        self.show("$ holdfast run visits.py", upper=True)
        job = subprocess.Popen(
            [PROGRAM, "run", "visits.py", "--no-rest"],
            cwd=self._folder,
            env=self._environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert job.stdout is not None
        threading.Thread(target=self._read, args=(job.stdout,), daemon=True).start()
        threading.Thread(target=self._feed, daemon=True).start()
        return job

    def run(self, command: str) -> None:
        """Run a command in the lower terminal."""
        self.show(f"$ {command}", upper=False)
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env={**self._environ, "PATH": f"{Path(PROGRAM).parent}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        for line in done.stdout.splitlines():
            self.show(line, upper=False)

    def batches(self, since: float = 0.0) -> list[tuple[int, float]]:
        """Return the batches that the job has reported, and when."""
        found = [(line, _BATCH.search(line.text)) for line in self.lines if line.upper and line.at > since]
        return [(int(match[1]), line.at) for line, match in found if match]

    def matches(self, pattern: re.Pattern[str]) -> list[str]:
        """Return what the lines of the job have of a pattern's group."""
        return [match[1] for line in self.lines if line.upper and (match := pattern.search(line.text))]

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"{what}\n" + "\n".join(line.text for line in self.lines)
            time.sleep(0.01)

    def close(self) -> None:
        self._over.set()

    def show(self, text: str, *, upper: bool) -> float:
        """Show a line now."""
        self.lines.append(Line(time.monotonic(), upper, text.replace(str(self._folder), SHOWN_FOLDER)))
        return self.lines[-1].at

    def _read(self, output: IO[str]) -> None:
        for line in output:
            self.show(line.rstrip("\n"), upper=True)

    def _feed(self) -> None:
        """Hand in one file of orders after another, until the recording is over."""
        for number in count():
            if self._over.wait(0.3):
                return
            rows = (f'{{"customer": "{name}", "cents": {250 + number % 7}}}\n' for name in CUSTOMERS)
            fresh = self._folder / "orders" / f".{number}"
            fresh.write_text("".join(rows))
            fresh.rename(fresh.with_name(f"{number:05}.json"))


class Take(NamedTuple):
    """What was recorded: the lines, the kill, and the second batch after it."""

    lines: list[Line]
    killed: float
    recovered: float


def record(folder: Path) -> Take:
    """Run the job, kill its driver, and look at its state."""
    recording = Recording(folder)
    job = recording.start()
    try:
        recording.wait(lambda: recording.matches(_STANDBY), "a standby driver")
        ready = time.monotonic()
        recording.wait(lambda: len(recording.batches(ready)) >= 3, "three batches beside it")
        driver = int(recording.matches(_DRIVER)[0])
        killed = recording.show(f"$ kill -9 {driver}", upper=False)
        os.kill(driver, signal.SIGKILL)
        recording.wait(lambda: len(recording.batches(killed)) >= 2, "two batches after the kill")
        newest, recovered = recording.batches(killed)[1]
        recording.run("holdfast state get visits ann")
        recording.run(f"holdfast state diff visits@{newest - 1} visits@{newest}")
    finally:
        recording.close()
        job.send_signal(signal.SIGTERM)
        job.wait()
    return Take(list(recording.lines), killed, recovered)


def paced(take: Take) -> list[Line]:
    """Return the lines with their seconds in the picture: real ones around the kill, then time to read."""
    lines = []
    now = 0.0
    for line in take.lines:
        since = line.at - take.killed
        if line.at <= take.recovered:
            now = max(0.0, OPENING_S + since)
        elif line.upper:
            continue
        elif line.text.startswith("$ "):
            now += READING_S
        lines.append(line._replace(at=now))
    return lines


def picture(lines: list[Line]) -> str:
    """Draw the terminals; each state of them is a group that is visible for its time."""
    moments = sorted({line.at for line in lines})
    end = moments[-1] + READING_S + 1.0
    height = (UPPER + LOWER) * 18 + 62
    frames, style = [], []
    for number, (at, until) in enumerate(zip(moments, [*moments[1:], end], strict=True)):
        rows = []
        for upper, top, size in ((True, 40, UPPER), (False, UPPER * 18 + 62, LOWER)):
            shown = [line.text for line in lines if line.upper == upper and line.at <= at][-size:]
            for row, text in enumerate(shown):
                kind = "c" if text.startswith("$ ") else "o"
                rows.append(f'<text x="14" y="{top + row * 18}" class="{kind}">{escape(text[:WIDTH])}</text>')
        frames.append(f'<g class="f" style="animation-name:f{number}">{"".join(rows)}</g>')
        begin, over = 100 * at / end, 100 * until / end
        hidden = f"0%{{opacity:0}}{begin:.2f}%{{opacity:1}}" if at else "0%{opacity:1}"
        after = "" if until == end else f"{over:.2f}%{{opacity:0}}"
        style.append(f"@keyframes f{number}{{{hidden}{after}100%{{opacity:{int(until == end)}}}}}")
    recovered = next(match[1] for line in lines if (match := _RECOVERED.search(line.text)))
    told = f"kill -9 ends the driver of a job, and the job has recovered in {recovered}"
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 740 {height}" role="img" aria-label="{told}">
<title>{told}</title>
<style>
text{{font:13px ui-monospace,Menlo,Consolas,monospace;white-space:pre}}
.o{{fill:#c9d1d9}}.c{{fill:#7ee787;font-weight:bold}}
.f{{opacity:0;animation:{end:.1f}s step-end infinite}}
.f:last-of-type{{opacity:1}}
{"".join(style)}
</style>
<rect width="740" height="{height}" rx="8" fill="#0d1117"/>
<rect y="{UPPER * 18 + 36}" width="740" height="1" fill="#30363d"/>
{chr(10).join(frames)}
</svg>
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="visits-") as folder:
        take = record(Path(folder).resolve())
    PICTURE.write_text(picture(paced(take)), encoding="utf-8")


if __name__ == "__main__":
    main()
