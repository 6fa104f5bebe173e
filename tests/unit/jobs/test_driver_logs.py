from __future__ import annotations

import os
from pathlib import Path

from holdfast.jobs.state_home import cut_log

MOST = 64 * 100


def line(number: int) -> bytes:
    return b"line %04d\n" % number  # ten bytes


def test_a_log_that_has_grown_too_large_keeps_its_start_and_its_newest_part(tmp_path: Path) -> None:
    log = tmp_path / "driver-1.log"
    writer = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(writer, b"".join(line(number) for number in range(MOST // 10)))
    cut_log(log, MOST)
    assert log.stat().st_size == MOST  # it is not too large yet
    os.write(writer, line(MOST // 10))
    cut_log(log, MOST)
    # A 64th of 6,400 bytes are ten lines. A quarter are 160; the first of them is taken for a part of a line.
    assert log.read_bytes().splitlines(keepends=True) == [
        *(line(number) for number in range(10)),
        b"... 4720 bytes were left out here ...\n",
        *(line(number) for number in range(640 - 159 + 1, 641)),
    ]
    # Whoever writes to it goes on at its end.
    os.write(writer, line(9999))
    os.close(writer)
    assert log.read_bytes().splitlines(keepends=True)[-2:] == [line(640), line(9999)]


def test_a_log_without_lines_is_cut_all_the_same(tmp_path: Path) -> None:
    log = tmp_path / "driver-1.log"
    log.write_bytes(b"x" * (MOST + 1))
    cut_log(log, MOST)
    assert log.read_bytes() == b"... 4801 bytes were left out here ...\n" + b"x" * 1600
