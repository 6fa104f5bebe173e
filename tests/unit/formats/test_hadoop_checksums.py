"""Hadoop's checksums of a file: one for each 512 bytes."""

from __future__ import annotations

import random

import pytest

from holdfast.formats.checksums import Comparison, HadoopChecksum, hadoop_checksum


@pytest.mark.parametrize("size", [1, 511, 512, 513, 5000 * 512 - 1, 5000 * 512 + 17])
def test_a_flipped_bit_is_found_and_told_where(size: int) -> None:
    data = random.Random(size).randbytes(size)
    sums = hadoop_checksum(data)
    assert sums.mismatch(data) is None
    for at in (0, size // 2, size - 1):
        bad = bytearray(data)
        bad[at] ^= 0x10
        start = at // 512 * 512
        words = f"bytes {start} to {min(start + 512, size)} do not have their checksum"
        assert sums.mismatch(bytes(bad)) == words
        values = list(sums.values)
        values[at // 512] ^= 1 << 7
        assert HadoopChecksum(512, tuple(values)).mismatch(data) == words


def test_parts_that_changed_places_are_found() -> None:
    data = random.Random(1).randbytes(5000 * 512)
    swapped = data[512:1024] + data[:512] + data[1024:]
    assert hadoop_checksum(data).mismatch(swapped) == "bytes 0 to 512 do not have their checksum"


def compared(sums: HadoopChecksum, data: bytes, portion: int) -> bool:
    comparison = Comparison(sums)
    for start in range(0, len(data), portion):
        comparison.see(data[start : start + portion])
    return comparison.fits


@pytest.mark.parametrize("size", [0, 1, 512, 513, 9 * 512, 9 * 512 + 17])
def test_a_file_may_come_in_portions(size: int) -> None:
    data = random.Random(size).randbytes(size)
    sums = hadoop_checksum(data)
    assert compared(sums, data, 1024)
    assert compared(sums, data, 512 * 100)
    for at in {0, size // 2, size - 1} & set(range(size)):
        bad = bytearray(data)
        bad[at] ^= 0x10
        assert not compared(sums, bytes(bad), 1024)


def test_portions_that_are_too_few_too_many_or_badly_cut_do_not_fit() -> None:
    data = random.Random(2).randbytes(8 * 512)
    sums = hadoop_checksum(data)
    assert not compared(sums, data[: 4 * 512], 1024)
    assert not compared(sums, data + data, 1024)
    assert not compared(sums, data, 700)
