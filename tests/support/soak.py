"""Hours of the bank under seeded faults: `make soak HOURS=… SEED=…` runs this and writes a report.

One job with two queries and two sinks runs as `holdfast run`, on a small disk where root can mount one. The
main thread brings about one fault after another; a thread feeds transfers, and another one audits at random
instants, also in the middle of a fault. After each fault the job must commit new batches. At the end every
transfer is in the journal once, and every window in the Delta table is right.

The faults follow from the seed: the same seed gives the same faults, arguments and waits in the same order,
and `--faults 17,18` brings about these numbers only. A fault hits whatever the job does at that moment, which
no seed decides. All that happens is a line of `soak.jsonl` in the directory of the run.
"""

from __future__ import annotations

import argparse
import random
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import pytest
from bank_audit import STEP, WINDOW_S, audit_journal, audit_state, audit_volume
from bank_auditor import EventLog
from bank_faults import Fault, chosen, plan
from bank_run import QUERIES, BankRun
from proof_report import _commit
from small_disk import small_disk
from soak_report import Outcome, page_with, tables

import holdfast as hf

ROOT: Final = Path(__file__).parents[2]
REPORT: Final = ROOT / "docs" / "proof" / "soak.md"
DISK_MB: Final = 512
# A transfer clears, and a window is written, at most so many files after its own: delays of the watermark,
# the bound of the join, and the files of two batches.
_CLEARS_AFTER: Final = 12
_WRITTEN_AFTER: Final = 36


class Soak:
    """A running bank, and the faults that have hit it.

    Args:
        run: The bank.
    """

    def __init__(self, run: BankRun) -> None:
        self.run = run
        self.took: defaultdict[str, list[float]] = defaultdict(list)

    def endure(self, faults: Iterator[Fault], deadline: float) -> None:
        """Bring about faults until the deadline, then let the job settle."""
        run = self.run
        try:
            run.begin_feeding()
            run.start()
            run.go_on(2)
            with run.auditor:
                for fault in faults:
                    if time.monotonic() > deadline:
                        break
                    self._bring_about(fault)
                run.end_feeding()
                run.until(lambda: all(run.read(query) == run.written for query in QUERIES), "all is read")
                run.stop()
            run.auditor.check()
            settled(run)
        except BaseException as error:
            run.log.line(failure="run", error="".join(traceback.format_exception(error)))
            run.keep_evidence()
            raise
        finally:
            run.end()

    def _bring_about(self, fault: Fault) -> None:
        """Bring about a fault, and wait until the job goes on."""
        run = self.run
        time.sleep(fault.wait_s)
        run.log.line(fault=fault.number, name=fault.name, args=fault.args)
        begun = time.monotonic()
        found = fault.bring_about(run)
        run.go_on()
        seconds = round(time.monotonic() - begun, 2)
        self.took[fault.name].append(seconds)
        run.log.line(passed=fault.number, name=fault.name, seconds=seconds, found=found)
        run.auditor.check()
        run.sample()


def settled(run: BankRun) -> None:
    """Check that everything is there once, and that nothing is left behind."""
    journal = run.out / "journal.db"
    assert audit_state(run.town, run.accounts) == run.written
    audit_journal(run.town, journal, run.accounts)
    windows = audit_volume(run.town, run.out / "volume")
    least = int((run.written - _WRITTEN_AFTER) * STEP.total_seconds() // WINDOW_S)
    assert windows >= least, f"{windows} windows of {run.written} files, not {least}"
    with closing(sqlite3.connect(journal)) as database:
        rows = database.execute("SELECT id, entry FROM journal").fetchall()
    transfers = [[each.id for each in run.town.transfers(file)] for file in range(run.written)]
    taken = {(name, entry) for names in transfers for name in names for entry in ("debit", "hold")}
    assert {row for row in rows if row[1] != "clear"} == taken
    cleared = {name for name, entry in rows if entry == "clear"}
    early = {name for names in transfers[: max(0, run.written - _CLEARS_AFTER)] for name in names}
    assert early <= cleared, f"transfers that never cleared: {sorted(early - cleared)[:5]}"
    for query in QUERIES:
        verdict = hf.checkpoints.verify(run.checkpoint(query), home=run.home)
        assert verdict.ok, verdict.problems
    left = sorted(path.name for path in (run.disk / "checkpoint").iterdir() if path.name not in QUERIES)
    run.log.line(left=left, windows=windows, cleared=len(cleared))
    assert not [name for name in left if not name.startswith(".")], f"left behind: {left}"


def main() -> None:
    """Run as long as is asked for; the exit code tells whether every invariant held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=0.5)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--faults", default="", help="numbers or names, separated by commas")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--no-report", action="store_true")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
    try:
        faults = chosen(plan(seed), options.faults)
    except ValueError as unknown:
        parser.error(str(unknown))
    command = f"make soak HOURS={options.hours:g} SEED={seed}"
    command += f" FAULTS={options.faults}" if options.faults else ""
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="soak-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    # Whoever ends it wants nothing left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.stderr.write(f"seed {seed}, log {folder}/soak.jsonl\n")
    begun, log = time.monotonic(), EventLog(folder / "soak.jsonl")
    commit = _commit()
    log.line(seed=seed, hours=options.hours, commit=commit)
    error: BaseException | None = None
    with ExitStack() as stack:
        place = folder / "disk"
        try:
            stack.enter_context(small_disk(place, f"size={DISK_MB}m"))
        except pytest.skip.Exception as reason:
            sys.stderr.write(f"no fault fills the disk: {reason}\n")
            place.mkdir(exist_ok=True)
            faults = (each for each in faults if each.name != "fill_disk")
        soak = Soak(BankRun(folder, seed, log, place))
        try:
            soak.endure(faults, begun + options.hours * 3600)
        except Exception as caught:
            error = caught
            traceback.print_exception(caught)
        run, seconds = soak.run, time.monotonic() - begun
        outcome = Outcome.of(
            command, commit, seconds, run.written, soak.took, run.auditor, run.samples, error
        )
    if options.no_report:
        sys.stdout.write("\n".join(tables(outcome)) + "\n")
    else:
        REPORT.write_text(page_with(REPORT.read_text("utf-8"), outcome), encoding="utf-8")
    sys.exit(error is not None)


if __name__ == "__main__":
    main()
