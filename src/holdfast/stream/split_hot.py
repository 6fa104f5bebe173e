"""The split of hot keys' rows over several tasks, with exactly the same result as without a split.

The shuffle sends all rows of a key to one task. If a key has half of all rows, that task has half of the
work, however many tasks there are. Only the given keys are split; rows of all other keys are unaffected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from holdfast.config.checks import one_of, whole
from holdfast.config.units import Duration
from holdfast.engine.connect import refuse_connect
from holdfast.engine.planned_state import marked
from holdfast.errors import Invalid
from holdfast.layout import split_note
from holdfast.stream.event_time import NOT_KEYS, key_columns
from holdfast.stream.joins import JoinKind, Parted, bounded_join, same_keys
from holdfast.stream.keyed.hot_keys import MOST_PARTS, PART, HotKeys, hot_keys, refuse_one_key
from holdfast.stream.keyed.keyed_stream import keyed
from holdfast.stream.operator_check import checked_name, define
from holdfast.stream.split_aggregates import SplitAggregate, aggregate_stream, aggregate_table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from holdfast.worker.declarations.state_descriptors import Keyed


Side = Literal["left", "right"]

_WHERE: Final = "holdfast.split_hot(…)"
# The sides that may be split for each kind, so that each row of the result is produced in one part only.
_SIDES: Final[Mapping[str, tuple[Side, ...]]] = {
    "inner": ("left", "right"),
    "left": ("left",),
    "semi": ("left",),
    "right": ("right",),
    "full": (),
}
_KEEPS: Final[Mapping[str, str]] = {
    "left": "a left row without a match would be returned once per part",
    "semi": "a left row would be returned once for each part with a match",
    "right": "a right row without a match would be returned once per part",
    "full": "rows without a match are returned from both sides, and one side would be in every part",
}


@dataclass(frozen=True, slots=True)
class SplitStream:
    """Rows with hot keys to split, ready for an operation; returned by `hf.split_hot`.

    Attributes:
        frame: The rows.
        hot: The hot keys and their parts.

    Example:
        from pyspark.sql import functions as F

        payments = events.select("customer", F.col("ts").alias("paid"))
        orders: hf.SplitStream = hf.split_hot(events, by="customer", hot=["ann"])
        matched = orders.join_within(payments, times=("ts", "paid"), bound="5 minutes")
        assert matched.isStreaming and "paid" in matched.columns
    """

    frame: DataFrame
    hot: HotKeys

    def join_within(
        self,
        other: DataFrame,
        *,
        times: tuple[str, str],
        bound: Duration | tuple[Duration, Duration],
        kind: JoinKind = "inner",
        watermark: Duration | tuple[Duration, Duration] | None = None,
        prefixes: tuple[str, str] | None = None,
        split: Side | None = None,
        name: str = "join",
    ) -> DataFrame:
        """Join with a second frame as `hf.join_within` does, with the same result; this frame is the left
        side.

        On the split side, each row of a hot key goes into one part, chosen by the hash of its columns; on the
        other side such a row goes into all parts. So each pair matches exactly once. The result is exact if
        rows without a match are returned from the split side only, or from neither side:

        | kind | is split | is in every part |
        |---|---|---|
        | `inner` | the left side, or `split="right"` | the other |
        | `left`, `semi` | the left side | the right |
        | `right` | the right side | the left |
        | `full` | neither; the kind is rejected | |

        Split the side with the many rows. The other side's rows of hot keys are stored, and counted as late,
        once per part. Rows that are equal in every column are in the same part, so a key whose rows are all
        equal is not split.

        The hot keys and the number of parts decide where Spark stores their rows. Holdfast records both at
        the first start of a query, and does not start it if they have changed. `hf.change(…).split(…)`
        creates a checkpoint with the waiting rows in the new parts. A query that you start with
        `writeStream.start()` is not checked: after a change, rows that wait for a match would not be found,
        without an error.

        Args:
            other: The right side.
            times: The event-time column of the left and of the right side.
            bound: The maximum time by which the right row is later than the left row, or both ends.
            kind: The type of join: `inner`, `left`, `right` or `semi`.
            watermark: The allowed lateness of a row, for both sides or one for each.
            prefixes: The prefixes for column names that both sides have, left and right.
            split: The side to split; required only for `inner`, otherwise it follows from `kind`.
            name: The name of the join in the checkpoint, unique in the query.

        Raises:
            Invalid: The split would change the result of this type of join, or an argument is invalid, as in
                `hf.join_within`.
        """
        checked_name(name, where=f"{_WHERE}.join_within(…, name=…)")
        chosen = _side(kind, split)
        parted = self._parted(chosen) if self.hot.keys else None
        joined = bounded_join(
            self.frame,
            other,
            by=self.hot.by,
            times=times,
            bound=bound,
            kind=kind,
            watermark=watermark,
            prefixes=prefixes,
            parted=parted,
        )
        if not self.frame.isStreaming:
            return joined
        refuse_connect(
            self.frame,
            "a join of streams with split keys",
            where=f"{_WHERE}.join_within(…)",
            hint="use hf.join_within, or start the query in a classic session: a Connect client cannot record"
            " the split keys in the checkpoint",
        )
        return marked(joined, define(SplitJoin(name, self.hot, chosen)))

    def process(self, processor: Keyed, *, output: Any, name: str, **choices: Any) -> DataFrame:
        """Run a processor with `merge`, as `hf.keyed(…).split_hot(…).process(…)` does.

        Args:
            processor: An instance of your processor class, with a `merge`.
            output: The columns of the output, as text or as a schema.
            name: The name of the operator.
            **choices: The other arguments of `process` of a keyed stream.

        Raises:
            Invalid: The processor has no `merge`, or an argument is invalid.
        """
        stream = keyed(self.frame, by=self.hot.by).split_hot(self.hot.keys)
        return stream.process(processor, output=output, name=name, **choices)

    def agg(self, *aggregates: SplitAggregate) -> DataFrame:
        """Aggregate by key; the result has the key columns and one column for each aggregate.

        **In a batch frame** the hot keys are aggregated in two phases: first the parts, then the keys. The
        result is exact for counts, sums of integers and decimals, `min`, `max`, the functions of sums `avg`,
        `variance` and `stddev`, and for one `count_distinct`, whose column then defines the parts.

        **In a stream** nothing is split: the plan is Spark's own `groupBy(…).agg(…)`, and the hot keys are
        ignored. Spark combines the rows of each task before the shuffle, so a hot key sends one row from each
        task, and the tasks have equal work. Two chained running aggregates would give wrong results in update
        mode. `hf.skew.count_distinct`, which Spark does not have for streams, is a deduplication by key and
        value, which distributes a hot key by its values, followed by a count. It stores each value of each
        key for the life of the checkpoint.

        In a batch frame, a split does not help either if the rows of a task can be combined; `holdfast bench
        skew` measures the difference.

        Args:
            aggregates: The aggregates, from `hf.skew.count()`, `hf.skew.sum("amount")` and so on. Other
                functions, such as `first`, `collect_list` and percentiles, are rejected, because they cannot
                be split exactly.

        Raises:
            Invalid: An aggregate cannot be split exactly, or a name or a column is invalid.
        """
        make: Callable[..., DataFrame] = aggregate_stream if self.frame.isStreaming else aggregate_table
        return make(self.frame, self.hot, aggregates)

    def _parted(self, side: Side) -> Parted:
        from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

        def parted(left: DataFrame, right: DataFrame) -> tuple[DataFrame, DataFrame, Column]:
            # The part of the split side's rows is computed where rows are compared; as a column it would be
            # stored with each row of any key.
            if side == "left":
                right = self.hot.replicate(right)
                same_part = self.hot.part(left, of="l.") == F.col(f"r.{PART}")
            else:
                left = self.hot.replicate(left)
                same_part = F.col(f"l.{PART}") == self.hot.part(right, of="r.")
            return left, right, same_keys(self.hot.by) & same_part

        return parted


@dataclass(frozen=True, slots=True)
class SplitJoin:
    """The note in a checkpoint about a join with split hot keys."""

    name: str
    hot: HotKeys
    side: Side

    @property
    def note_name(self) -> str:
        """Return the note's file name."""
        return split_note(self.name)

    def new_note(self, before: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the note at the first start, or None at later starts.

        Raises:
            Invalid: The hot keys, the number of parts or the split side have changed.
        """
        now = {**self.hot.note(), "side": self.side if self.hot.keys else None}
        if before is None:
            return now
        changes = list(_changes(before, now))
        if changes:
            raise Invalid(
                "the split of a join has changed, so rows waiting for a match would not be found",
                code="HF-E2394",
                where=f"split join {self.name}",
                found="; ".join(changes),
                expected="the split of the first start",
                hint="restore the former hot keys and parts, or move the waiting rows to the new ones with"
                f' hf.change(CHECKPOINT).split("{self.name}", hot=[…], parts={self.hot.parts})'
                ".to(NEW, stopped=True)",
            )
        return None


def split_hot(df: DataFrame, *, by: str | Iterable[str], hot: Iterable[Any], parts: int = 8) -> SplitStream:
    """Declare the hot keys of a frame, so that the next operation splits their rows, with exact results.

    Continue with `.agg(…)`, `.join_within(…)` or `.process(…)`.

    Without hot keys nothing is split: the plan is that of `hf.join_within` or of an ordinary aggregate.

    Args:
        df: The rows, streaming or not.
        by: The key columns.
        hot: The keys to split: values, or tuples for several key columns. `hf.skew.find(…)` finds them in a
            batch frame. Null is a valid key.
        parts: The number of parts of each key. The best value is the number of shuffle partitions, which
            gives each task one part.

    Raises:
        Invalid: A column or a key is invalid, or there are too many keys or parts.

    Example:
        orders = spark.createDataFrame([("ann", 1), ("ann", 2), ("bob", 1)], "customer string, cups int")
        cups = hf.split_hot(orders, by="customer", hot=["ann"]).agg(hf.skew.sum("cups").alias("cups"))
        assert dict(cups.collect()) == {"ann": 3, "bob": 1}
    """
    keys = key_columns(df, by, where=_WHERE, refused=NOT_KEYS)
    whole(parts, f"{_WHERE}: parts", least=2, most=MOST_PARTS)
    refuse_one_key(hot, _WHERE)
    return SplitStream(df, hot_keys(df, keys, hot, parts, where=_WHERE))


def _side(kind: str, split: str | None) -> Side:
    """Return the side to split for a type of join, or raise an error if none is possible."""
    allowed = _SIDES.get(kind, ("left", "right"))
    if split is not None:
        one_of(split, f"{_WHERE}: split", ("left", "right"))
    if not allowed or (split is not None and split not in allowed):
        raise Invalid(
            (f"splitting the {split} side" if allowed else "splitting hot keys")
            + f" would change the result of a {kind} join",
            code="HF-E2396",
            where=f"{_WHERE}.join_within(…)",
            found=f"kind={kind!r}" + (f", split={split!r}" if split is not None else ""),
            expected=f'split="{allowed[0]}"' if allowed else "inner, left, right or semi",
            hint=("remove `split=`" if allowed else "use hf.join_within instead") + f": {_KEEPS[kind]}",
        )
    return "left" if "left" in allowed and split != "right" else "right"


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterable[str]:
    for what in ("by", "parts", "side"):
        if before[what] != now[what]:
            yield f"{what} was {before[what]!r}, is {now[what]!r}"
    gone = [key for key in before["hot"] if key not in now["hot"]]
    added = [key for key in now["hot"] if key not in before["hot"]]
    if gone:
        yield f"no longer hot: {', '.join(gone)}"
    if added:
        yield f"newly hot: {', '.join(added)}"
