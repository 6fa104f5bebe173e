"""SQL in a text: what is followed, and what is left alone."""

from __future__ import annotations

import ast

import pytest

from holdfast.advice.source.source_lint import source_hits

VIEWS = """
spark.readStream.table("events").createOrReplaceTempView("Events")
spark.readStream.table("events").withWatermark("ts", "1 hour").createOrReplaceTempView("timed")
spark.readStream.table("paid").withWatermark("paid_at", "1 hour").createOrReplaceTempView("payments")
spark.read.table("shops").createOrReplaceTempView("shops")
"""


def found(text: str) -> set[str]:
    return {hit.rule for hit in source_hits(ast.parse(f"{VIEWS}\nmade = spark.sql({text!r})"))}


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("select user, count(*) n from events group by user", {"HF102"}),
        ("select user, count(*) n from EVENTS group by 1;", {"HF102"}),
        ("select lower(user) as u, count(*) from events group by u", {"HF102"}),
        ("SELECT user, count(*) FROM timed GROUP BY user", {"HF102"}),
        ("select window(ts, '5 minutes'), count(*) from events group by 1", {"HF101"}),
        ("select window(at, '5 minutes') w, count(*) from timed group by w", {"HF202"}),
        ("select user, collect_list(page) from timed group by user, ts", {"HF109"}),
        ("select distinct user from events", {"HF103"}),
        ("select distinct user from timed", {"HF104"}),
        ("select distinct user, ts from timed", {"HF105"}),
        ("select * from events e join payments p on e.id = p.id", {"HF106"}),
        ("select * from timed t join payments p using (id)", {"HF107", "HF206"}),
        ("create or replace temp view users as select user, count(*) from events group by user", {"HF102"}),
    ],
)
def test_a_plain_select_is_followed(text: str, rules: set[str]) -> None:
    assert found(text) == rules


@pytest.mark.parametrize(
    "text",
    [
        "",
        "select",
        "select 1",
        "show tables",
        "select user, count(*) from others group by user",
        "select user, count(*) from shops group by user",
        "select user, count(*) from (select * from events) group by user",
        "with e as (select * from events) select user, count(*) from e group by user",
        "select user from events union select user from events",
        "select user, count(*) from events group by all",
        "select user, count(*) from events group by cube (user, day)",
        "select n % 8 as part, count(*) from events group by part",
        "select paid is null as open, count(*) from events group by 1",
        "select count(*) from events",
        "select 'group by user' as text from events -- group by user",
        "select /* distinct */ user from events",
        "select user, count(*) from {stream} group by user",
        "select window(ts, '5 minutes') w, count(*) from timed group by w",
        "select window, count(*) from timed group by window(ts, '5 minutes')",
        "select * from events e left join shops s on e.shop = s.id",
        "select * from events e join others o on e.shop = o.id",
        "select e.user, count(*) from events e, lateral explode(e.items) group by user",
        "select `group` from events where (((",
    ],
)
def test_what_is_more_is_left_alone(text: str) -> None:
    assert found(text) == set()


def test_a_bound_of_times_is_seen() -> None:
    text = (
        "select * from timed t join payments p on t.id = p.id and paid_at between ts and ts + interval 1 hour"
    )
    assert found(text) == {"HF206"}


def test_a_text_that_is_put_together_is_left_alone() -> None:
    code = f'{VIEWS}\nmade = spark.sql(f"select {{key}}, count(*) from events group by {{key}}")'
    assert list(source_hits(ast.parse(code))) == []


def test_a_view_of_a_view_is_followed() -> None:
    code = (
        f"{VIEWS}\nspark.sql('create temp view paid as select user from events where paid')\n"
        "spark.table('paid').dropDuplicates(['user'])"
    )
    assert {hit.rule for hit in source_hits(ast.parse(code))} >= {"HF103"}
