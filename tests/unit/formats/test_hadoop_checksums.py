"""Hadoop's checksums of a file: one for each 512 bytes."""

from __future__ import annotations

import random

import pytest

from holdfast.formats.checksums import HadoopChecksum, hadoop_checksum


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
