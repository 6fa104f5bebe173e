"""Hadoop's checksums of a file: one for each 512 bytes."""

from __future__ import annotations

import random
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.formats.files.checksums import ChecksumComparison, HadoopChecksum, hadoop_checksum


@pytest.mark.parametrize("size", [1, 511, 512, 513, 5000 * 512 - 1, 5000 * 512 + 17])
def test_a_flipped_bit_is_found_and_told_where(size: int) -> None:
    data = random.Random(size).randbytes(size)
    sums = hadoop_checksum(data)
    assert sums.mismatch(data) is None
    for at in (0, size // 2, size - 1):
        bad = bytearray(data)
        bad[at] ^= 0x10
        start = at // 512 * 512
        words = f"bytes {start} to {min(start + 512, size)} differ"
        assert sums.mismatch(bytes(bad)) == words
        wrong = bytearray(sums.packed)
        wrong[at // 512 * 4 + 2] ^= 1 << 7
        assert HadoopChecksum(512, bytes(wrong)).mismatch(data) == words


@given(
    step=st.sampled_from((1, 3, 4, 5, 16, 512)),
    size=st.integers(0, 4000),
    flips=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 7)), max_size=4),
    in_sums=st.booleans(),
    seed=st.integers(0, 99),
)
def test_all_at_once_says_what_one_by_one_says(
    step: int, size: int, flips: list[tuple[int, int]], in_sums: bool, seed: int
) -> None:
    data = bytearray(random.Random(seed).randbytes(size))
    sums = bytearray(one_by_one(data, step))
    for at, bit in flips:
        damaged = sums if in_sums else data
        if damaged:
            damaged[at % len(damaged)] ^= 1 << bit
    fits = one_by_one(data, step) == sums
    assert (HadoopChecksum(step, bytes(sums)).mismatch(bytes(data)) is None) == fits


def one_by_one(data: bytes | bytearray, step: int) -> bytes:
    """What Hadoop writes: a CRC-32 of each step, by another library."""
    return b"".join(struct.pack(">I", zlib.crc32(data[at : at + step])) for at in range(0, len(data), step))


def test_parts_that_changed_places_are_found() -> None:
    data = random.Random(1).randbytes(5000 * 512)
    swapped = data[512:1024] + data[:512] + data[1024:]
    assert hadoop_checksum(data).mismatch(swapped) == "bytes 0 to 512 differ"


def compared(sums: HadoopChecksum, data: bytes, portion: int) -> bool:
    comparison = ChecksumComparison(sums)
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
