"""Tables and fields as lines: what is cut, what is left out, and what never is."""

from __future__ import annotations

import pytest

from holdfast.cli.output import WholeText, broken, broken_text, cell, field_lines, table_lines

IDS = ("20260305T080000.000Z-1f0c33aa-b41-9d2e", "20260305T080000.000Z-1f0c33aa-b42-0001")
ROWS = [
    (1, "a long text that goes on and on", None, WholeText("2026-03-05 08:00:00Z"), "end"),
    (1234567, "short", None, WholeText("2026-03-05 08:00:01Z"), "another end"),
]
NAMES = ["COUNT", "TEXT", "NEVER", "WHEN", "LAST"]


def test_nothing_is_cut_or_left_out_where_no_room_is_given() -> None:
    assert table_lines(NAMES, ROWS, None, spare=("TEXT",)) == [
        "    COUNT  TEXT                             NEVER  WHEN                  LAST",
        "        1  a long text that goes on and on      –  2026-03-05 08:00:00Z  end",
        "1,234,567  short                                –  2026-03-05 08:00:01Z  another end",
    ]


def test_text_is_cut_and_numbers_and_times_are_not() -> None:
    assert table_lines(NAMES, ROWS, 60) == [
        "    COUNT  TEXT            WHEN                  LAST",
        "        1  a long text t…  2026-03-05 08:00:00Z  end",
        "1,234,567  short           2026-03-05 08:00:01Z  another end",
    ]


def test_columns_that_can_be_spared_go_first_and_are_named() -> None:
    assert table_lines(NAMES, ROWS, 46, spare=("LAST",)) == [
        "    COUNT  TEXT           WHEN",
        "        1  a long text …  2026-03-05 08:00:00Z",
        "1,234,567  short          2026-03-05 08:00:01Z",
        "(columns hidden for lack of space: LAST)",
    ]


def test_rows_that_do_not_fit_stand_as_names_and_values_with_all_columns() -> None:
    assert table_lines(NAMES, ROWS[:1], 60) == [
        "COUNT  1",
        "TEXT   a long text that goes on and on",
        "WHEN   2026-03-05 08:00:00Z",
        "LAST   end",
    ]
    assert table_lines(NAMES, ROWS, 30, spare=("LAST",)) == [
        "COUNT  1",
        "TEXT   a long text that goes",
        "       on and on",
        "WHEN   2026-03-05 08:00:00Z",
        "LAST   end",
        "",
        "COUNT  1,234,567",
        "TEXT   short",
        "WHEN   2026-03-05 08:00:01Z",
        "LAST   another end",
    ]


def test_ids_are_as_short_as_tells_them_apart() -> None:
    rows = [(name, 1) for name in IDS]
    assert table_lines(["ID", "N"], rows, None, {"ID": 15})[1] == f"{IDS[0]}  1"
    assert [line.split()[0] for line in table_lines(["ID", "N"], rows, 80, {"ID": 15})[1:]] == [
        "20260305T080000.000Z-1f0c33aa-b41",
        "20260305T080000.000Z-1f0c33aa-b42",
    ]
    assert table_lines(["ID", "N"], rows[:1], 80, {"ID": 15})[1] == "20260305T080000  1"


def test_no_row_leaves_the_names() -> None:
    assert table_lines(NAMES, [], 10) == ["COUNT  TEXT  NEVER  WHEN  LAST"]


def test_signs_that_take_two_places_or_none_keep_columns_under_each_other() -> None:
    assert table_lines(["NAME", "N"], [("東京", 1), ("e\u0301", 2)], 80) == [
        "NAME  N",
        "東京  1",
        "e\u0301     2",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (1234, "1,234"),
        (True, "True"),
        ("a\nb\x1b[2J", "a\\nb\\x1b[2J"),
        ("ok …", "ok …"),
        ("user\u202egnp.exe", "user\\u202egnp.exe"),  # would be shown as userexe.png
        ("\u2067a\u2069 b\u200bc\ufeff", "\\u2067a\\u2069 b\\u200bc\\ufeff"),
        ("a\u2028b\U000e0041", "a\\u2028b\\U000e0041"),
        ("\udcff", "\\udcff"),
        ("東京\u3000é", "東京\u3000é"),
    ],
)
def test_a_cell_is_one_line_and_moves_no_cursor(value: object, text: str) -> None:
    assert cell(value) == text


def test_a_long_value_goes_on_below_and_an_address_stays_whole() -> None:
    pairs = [("size", "12 bytes in a few files"), ("where", "file:///a/very/long/address/of/state")]
    assert field_lines(pairs, 24) == [
        "size   12 bytes in a few",
        "       files",
        "where  file:///a/very/long/address/of/state",
    ]


def test_a_sentence_ends_at_words_and_a_command_stays_in_one_piece() -> None:
    text = "see what would go with `holdfast check job.py`"
    assert broken(text, 30, below="  ") == ["see what would go with", "  `holdfast check job.py`"]
    assert broken(text, None, "  ") == [f"  {text}"]


def test_a_key_to_be_copied_stays_in_one_piece_and_an_apostrophe_begins_none() -> None:
    text = "the job's key is '2026-03-05 09:00,ann' and the jobs' too"
    assert broken(text, 24) == ["the job's key is", "'2026-03-05 09:00,ann'", "and the jobs' too"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("short   as it is", ["short   as it is"]),
        ("hint: see what there is below it", ["hint: see what there is", "      below it"]),
        ("ok       java: is at such a place", ["ok       java: is at such", "         a place"]),
        ("  found that there is another one", ["  found that there is", "    another one"]),
        ("first line\nthe second one of them all", ["first line", "the second one of them", "  all"]),
        ("state/0/0/8_efc10492-04b6-4ded.zip", ["state/0/0/8_efc10492-04b6-4ded.zip"]),
    ],
)
def test_a_line_goes_on_under_where_its_sentence_begins(text: str, lines: list[str]) -> None:
    assert broken_text(text, 25) == lines
    assert broken_text(text, None) == text.split("\n")


def test_values_that_go_on_below_are_whole() -> None:
    rows = [(1, "one two three four five six"), (2, "seven")]
    assert table_lines(["N", "WORDS"], rows, 24, below=["WORDS"]) == [
        "N  WORDS",
        "1  one two three four",
        "   five six",
        "2  seven",
    ]
