"""What is followed in a file, and what is left alone since it cannot be told."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.advice.lint_api import lint_path as lint
from holdfast.advice.source.query_checks import delay_ms
from holdfast.advice.source.source_lint import source_hits

READ = 'from pyspark.sql import functions as F\nevents = spark.readStream.table("events")\n'


def found(code: str) -> list[tuple[str, int]]:
    return sorted({(hit.rule, hit.line) for hit in source_hits(ast.parse(code))})


@pytest.mark.parametrize(
    "code",
    [
        "",
        'df.groupBy("a").count()',
        'spark.read.table("a").dropDuplicates(["id"])',
        "frame.drop_duplicates(inplace=True)",
        "def f(df):\n    return df.dropDuplicates(['id']).writeStream",
        f"{READ}events.groupBy(*keys).count()",
        f"{READ}events.groupBy().count()",
        f"{READ}events.groupBy((F.col('n') % 8).alias('part')).count()",
        f"{READ}events.withWatermark(column, '1 hour').groupBy('user').count()",
        f"{READ}events = other(events)\nonce = events.dropDuplicates(['id'])",
        f"{READ}if a:\n    events = events.withWatermark('ts', a)\nonce = events.dropDuplicates(['id'])",
        f"{READ}once = events.transform(other).dropDuplicates(['id'])",
        f"{READ}events.join(tables.shops, 'shop')",
        f"{READ}events.writeStream.options(**more).start()",
        f"{READ}t = events.withWatermark('ts', '1 hour').toDF('a', 'b')\nt.groupBy('a').count()",
        f"{READ}t = events.withWatermark('ts', '1 hour').select(*more)\nt.groupBy('a').count()",
        f"{READ}events.writeStream.option(key, value).format('delta').start()",
        f"{READ}events.writeStream.format('delta').option('checkpointLocation', place).start()",
    ],
)
def test_what_cannot_be_told_is_left_alone(code: str) -> None:
    assert found(code) == []


def test_a_chain_is_reported_where_the_method_is_called() -> None:
    code = f'{READ}counts = (\n    events\n    .select("a", "b")\n    .groupBy("a")\n    .count()\n)\n'
    assert found(code) == [("HF102", 7)]


def test_methods_and_attributes_are_followed() -> None:
    code = """
class Job:
    def __init__(self, spark):
        self.events = spark.readStream.table("events")

    def unique(self):
        return self.events.dropDuplicates(["id"])


class Timed(Job):
    def unique(self):
        return self.events.withWatermark("ts", "1 hour").dropDuplicatesWithinWatermark(["id"])
"""
    assert found(code) == [("HF103", 7)]


def test_a_function_is_followed_for_each_frame_that_it_is_given() -> None:
    code = f"""{READ}
def counts(frame):
    return frame.groupBy(F.window("ts", "1 hour")).count()

counts(events.withWatermark("ts", "1 hour"))
counts(events)
"""
    assert found(code) == [("HF101", 5)]


def test_functions_that_call_each_other_come_to_an_end() -> None:
    functions = "def a(x):\n    return b(x)\n\ndef b(x):\n    return a(x)\n"
    code = f"{READ}\n{functions}\nonce = a(events).dropDuplicates(['id'])\n"
    assert found(code) == []


@pytest.mark.slow
def test_a_large_file_is_followed_to_its_end(tmp_path: Path) -> None:
    lines = [f"t{n} = events.withWatermark('ts', '1 hour').dropDuplicates(['id'])" for n in range(2000)]
    file = tmp_path / "job.py"
    file.write_text(READ + "\n".join(lines))
    assert len(lint(file).findings) == 2000


def test_nested_calls_do_not_take_for_ever(tmp_path: Path) -> None:
    doubling = "\n".join(f"def f{n}(x):\n    f{n + 1}(x)\n    f{n + 1}(x)\n" for n in range(40))
    file = tmp_path / "job.py"
    file.write_text(f"{doubling}\ndef f40(x):\n    return x\n\nf0(spark.readStream.table('t'))\n")
    assert lint(file).findings == ()


@pytest.mark.slow
def test_a_file_that_is_not_followed_to_its_end_says_so(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text("a = [" + "1, " * 200_000 + "]\n" + READ + "once = events.dropDuplicates(['id'])\n")
    report = lint(file)
    assert (report.findings, report.complete) == ((), False)
    file.write_text("a = [" + "1, " * 2_000 + "]\n" + READ + "once = events.dropDuplicates(['id'])\n")
    report = lint(file)
    assert ([finding.rule for finding in report.findings], report.complete) == (["HF103"], True)


@pytest.mark.slow
def test_lint_loads_no_spark_and_runs_nothing(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text("raise SystemExit('it was run')\n")
    code = (
        "import sys, holdfast as hf\n"
        f"assert hf.lint({str(file)!r}).findings == ()\n"
        "assert not {'pyspark', 'py4j', 'pandas', 'pyarrow'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("10 minutes", 600_000),
        ("1 hour 30 minutes", 5_400_000),
        ("interval 2 days", 172_800_000),
        ("1 month", 30 * 86_400_000),
        ("2 years", 720 * 86_400_000),
        ("soon", None),
        (None, None),
    ],
)
def test_delays_are_read_as_spark_reads_them(text: str | None, ms: int | None) -> None:
    assert delay_ms(text) == ms
