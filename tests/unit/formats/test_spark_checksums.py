"""Spark's checksum of a file: the CRC-32C of all of it, signed as Java writes it."""

from __future__ import annotations

import random

import pytest

from holdfast.formats.files.checksums import spark_checksum


def crc32c(data: bytes) -> int:
    return spark_checksum(data, 0).value & 0xFFFFFFFF


def slow(data: bytes) -> int:
    """The definition: a division of polynomials, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_the_vectors_of_the_standard() -> None:
    # RFC 3720, appendix B.4, and the check value of the catalogue of CRCs.
    assert crc32c(b"") == 0
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


@pytest.mark.parametrize("length", [1, 3, 4, 1023, 1024, 1025, 1151, 1152, 1153, 4096, 9999, 40_000])
def test_any_length_is_the_division(length: int) -> None:
    data = random.Random(length).randbytes(length)
    assert crc32c(data) == slow(data)


def test_leading_zeros_count() -> None:
    data = bytes(2000) + b"x"
    assert crc32c(data) == slow(data) != crc32c(data[1:])
