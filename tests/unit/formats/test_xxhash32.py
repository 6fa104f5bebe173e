from __future__ import annotations

from lz4_streams import xxhash32_by_definition

from holdfast.formats.xxhash32 import xxhash32

PRIME = 2654435761
JAVA = 0x9747B28C


def test_known_hashes() -> None:
    assert xxhash32([b""], 0) == [0x02CC5D05]
    assert xxhash32([b""], PRIME) == [0x36B78AE7]
    assert xxhash32([b"abc"], 0) == [0x32D153FF]


def test_every_length_is_what_the_specification_says() -> None:
    text = bytes((each * each + 7) & 0xFF for each in range(1000))
    blocks = [text[:length] for length in (0, 1, 3, 4, 15, 16, 17, 31, 32, 101, 222, 1000)]
    for seed in (0, PRIME, JAVA):
        assert xxhash32(blocks, seed) == [xxhash32_by_definition(block, seed) for block in blocks]


def test_blocks_of_one_length_do_not_mix() -> None:
    blocks = [bytes([number]) * 64 for number in range(5)]
    assert xxhash32(blocks, 7) == [xxhash32_by_definition(block, 7) for block in blocks]
