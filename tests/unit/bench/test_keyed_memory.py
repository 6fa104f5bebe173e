from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast_bench.keyed.keyed_memory import Memory, WorkerMemory

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")

MIB = 1024 * 1024

# Holds 64 MiB, gives them back, says so, and waits for the end of its input.
WORKER = """
import sys
block = b"x" * (64 << 20)
del block
print("ready", flush=True)
sys.stdin.read()
"""


def peak_below(argument: str) -> Memory:
    # Below a process of its own: this one may have real workers.
    command = ["sh", "-c", '"$0" -c "$1" "$2"; true', sys.executable, WORKER, argument]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        watch = WorkerMemory(process.pid)
        watch.look()
        process.communicate()
    return watch.peak


def test_the_peak_of_a_worker_is_seen_after_it_has_passed() -> None:
    peak = peak_below("pyspark.daemon")
    assert peak.resident_bytes > 64 * MIB
    assert 0 < peak.private_bytes < 64 * MIB


def test_other_processes_do_not_count() -> None:
    assert peak_below("pyspark-shell") == Memory(0, 0)


def test_it_looks_at_once_and_stops_when_it_is_left() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        with WorkerMemory(process.pid, interval_s=3600) as watch:
            pass
        process.communicate()
    assert watch.peak == Memory(0, 0)
