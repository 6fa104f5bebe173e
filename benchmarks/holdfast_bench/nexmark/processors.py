"""The processors of the queries that need keyed state, and of some that are faster with it.

Each takes a table with the events of many keys at a time, but for `SellerAverages`, which reads better key
by key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

import holdfast as hf

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Mask = NDArray[np.bool_]

WINDOW_MS: Final = 10_000
SLIDE_MS: Final = 2_000
# A sliding window consists of so many parts.
PARTS: Final = WINDOW_MS // SLIDE_MS
_NEVER: Final = -(2**40)
TOP: Final = 10
LAST: Final = 10


class WinningBids(hf.KeyedTable):
    """Per auction: the highest bid so far, which is emitted when the auction expires.

    A bid counts if the auction is open at the time of the bid. Of equal prices the earlier bid wins. A bid
    may come before its auction; it waits until the watermark has passed it, when no auction can come that
    was open at its time.
    """

    auction = hf.value(
        "struct<itemName: string, description: string, initialBid: long, reserve: long, dateTime: timestamp,"
        " expires: timestamp, seller: long, category: long, extra: string>"
    )
    best = hf.value("struct<bidder: long, price: long, dateTime: timestamp, extra: string>")
    early = hf.list(
        "struct<bidder: long, price: long, dateTime: timestamp, extra: string>",
        ttl=hf.ttl("1 second", clock="event"),
    )

    output = (
        "id long, itemName string, description string, initialBid long, reserve long, dateTime timestamp,"
        " expires timestamp, seller long, category long, extra string,"
        " bidder long, price long, bid_dateTime timestamp, bid_extra string"
    )

    def on_auctions(self, events: pa.Table, state: Any) -> None:
        """Open auctions, and count the bids that have waited for them."""
        opened = events.take(np.argsort(state.position))  # one event per auction
        state.auction = _structs(opened, state.auction.get().type)
        state.timer(opened["expires"])
        waiting = state.early.get()
        self._count(pc.list_flatten(waiting), _owners(waiting), state)
        state.early.clear()

    def on_bids(self, events: pa.Table, state: Any) -> None:
        """Count the bids on open auctions, and keep the others."""
        bids = _structs(events, state.best.get().type)
        is_open = _mask(state.auction.get().is_valid())[state.position]
        self._count(bids.filter(is_open), state.position[is_open], state)
        if not is_open.all():
            state.early.append(bids, where=~is_open)

    def on_timers(self, timers: pa.Table, state: Any) -> pa.Table:  # noqa: ARG002 - each auction has one timer
        """Emit the winners and forget the auctions."""
        best, auction = state.best.get(), state.auction.get()
        sold = _mask(best.is_valid())
        names = [*auction.type.names, *(_OF_BID.get(name, name) for name in best.type.names)]
        columns = [*auction.filter(sold).flatten(), *best.filter(sold).flatten()]
        ids = state.keys.filter(sold).column(0)
        state.clear()
        return pa.table([ids, *columns], names=["id", *names])

    def _count(self, bids: pa.Array, owner: Numbers, state: Any) -> None:
        """Compare bids with the best ones; `owner` is the auction of each bid."""
        auction, best = state.auction.get(), state.best.get()
        at = _numbers(bids.field("dateTime"))
        begin, end = (_numbers(auction.field(name))[owner] for name in ("dateTime", "expires"))
        counts = (begin <= at) & (at <= end)
        held = np.flatnonzero(_mask(best.is_valid()))
        rivals = pa.concat_arrays([best.drop_null(), bids.filter(counts)])
        owner = np.concatenate([held, owner[counts]])
        price, at, bidder = (_numbers(rivals.field(name)) for name in ("price", "dateTime", "bidder"))
        first = _largest(owner, state.size, price, -at, -bidder)
        first = first[first >= len(held)]
        _replace(state.best, rivals, first, owner[first], state.size)


_OF_BID: Final = {"dateTime": "bid_dateTime", "extra": "bid_extra"}


class WinningPrices(WinningBids):
    """The same with the columns that averages need, so that the state stays small."""

    auction = hf.value("struct<dateTime: timestamp, expires: timestamp, seller: long, category: long>")
    best = hf.value("struct<bidder: long, price: long, dateTime: timestamp>")
    early = hf.list(
        "struct<bidder: long, price: long, dateTime: timestamp>", ttl=hf.ttl("1 second", clock="event")
    )

    output = (
        "id long, dateTime timestamp, expires timestamp, seller long, category long,"
        " bidder long, price long, bid_dateTime timestamp"
    )


class CategoryAverages(hf.KeyedTable):
    """Per category: the average price of all auctions that were won."""

    auctions = hf.value("long", default=0)
    total = hf.value("long", default=0)

    output = "category long, final long"

    def on_batch(self, events: pa.Table, state: Any) -> pa.Table:  # noqa: ARG002 - by name through the state
        """Add the prices of a batch."""
        state.auctions += state.counts()
        state.total += state.sums("price")
        return state.table(final=state.total // state.auctions)


class SellerAverages(hf.Keyed):
    """Per seller: the average price of the last ten auctions, in the order in which they expired."""

    prices = hf.value("array<long>")

    output = "seller long, avg_price long"

    def on_key(self, key: Any, events: Sequence[Any], state: Any, ctx: Any) -> Iterator[Any]:  # noqa: ARG002
        """Add the auctions of a batch; those of later batches expired later."""
        prices = state.prices or ()
        for event in sorted(events, key=lambda event: (event.expires, event.id)):
            prices = [*prices[1 - LAST :], event.price]
            yield key.seller, sum(prices) // len(prices)
        state.prices = prices


class HighestBids(hf.KeyedTable):
    """Per window: all bids with the highest price, which are emitted when the window is over."""

    price = hf.value("long", default=-1)
    bids = hf.list("struct<auction: long, bidder: long, price: long, dateTime: timestamp, extra: string>")

    output = "auction long, bidder long, price long, dateTime timestamp, extra string"

    def combine(self, events: pa.Table) -> pa.Table:
        """Keep the highest bids of each window."""
        windows, of_window = np.unique(_numbers(events["starttime"]), return_inverse=True)
        return events.take(_largest(of_window, len(windows), _numbers(events["price"]), ties=True))

    def on_batch(self, events: pa.Table, state: Any) -> None:
        """Compare bids with the highest ones."""
        highest = state.max("price", default=-1)
        state.bids.clear(where=highest > state.price.get())
        state.price = np.maximum(highest, state.price)
        equal = _numbers(events["price"]) == state.price.get()[state.position]
        state.bids.append(_structs(events, state.bids.get().type.value_type), where=equal)
        state.timer(_ms(state.keys["starttime"]) + WINDOW_MS)

    def on_timers(self, timers: pa.Table, state: Any) -> pa.Table:  # noqa: ARG002 - each window has one timer
        """Emit and forget."""
        bids = pc.list_flatten(state.bids.get())
        state.clear()
        return pa.Table.from_arrays(bids.flatten(), names=bids.type.names)


class SlidingCounts(hf.KeyedTable):
    """Per auction: its bids of the last ten seconds, counted every two seconds.

    A bid is counted once, in its part of two seconds; a window is the sum of five parts. When the watermark
    passes the end of a window, only the auctions with the most bids of each partition are emitted.
    """

    parts = hf.value("array<struct<part: long, bids: long>>")

    combined = "auction long, part long, bids long"
    output = "starttime timestamp, auction long, num long"

    def combine(self, events: pa.Table) -> pa.Table:
        """Count bids before the shuffle."""
        parts = pa.table([events["auction"], _ms(events["dateTime"]) // SLIDE_MS], names=["auction", "part"])
        counted = parts.group_by(["auction", "part"]).aggregate([([], "count_all")])
        return counted.rename_columns(["auction", "part", "bids"])

    def on_batch(self, events: pa.Table, state: Any) -> None:
        """Add the bids of windows that are still open."""
        closed, held = self._closed(state), state.parts.get()
        added = _structs(events, held.type.value_type)
        is_open = _numbers(added.field("part")) + PARTS > closed
        parts = pa.concat_arrays([pc.list_flatten(held), added.filter(is_open)])
        owner = np.concatenate([_owners(held), state.position[is_open]])
        self._keep(parts, owner, state, closed)

    def on_timers(self, timers: pa.Table, state: Any) -> pa.Table:
        """Emit the windows that are over, and forget the parts that no open window has."""
        closed, held = self._closed(state), state.parts.get()
        since = np.zeros(state.size, np.int64)
        since[state.position] = _ms(timers["at"]) // SLIDE_MS
        parts, owner = pc.list_flatten(held), _owners(held)
        part = _numbers(parts.field("part"))
        # The windows of a part, by their ends.
        end = part + np.arange(1, PARTS + 1)[:, np.newaxis]
        step, row = np.nonzero((end >= since[owner]) & (end <= closed))
        windows, of_pair = np.unique([end[step, row], owner[row]], axis=1, return_inverse=True)
        bids = np.zeros(windows.shape[1], np.int64)
        np.add.at(bids, of_pair.ravel(), _numbers(parts.field("bids"))[row])
        is_open = part + PARTS > closed
        self._keep(parts.filter(is_open), owner[is_open], state, closed)
        counted = pa.table(
            [
                _timestamps((windows[0] - PARTS) * SLIDE_MS),
                state.keys["auction"].take(pa.array(windows[1])),
                bids,
            ],
            names=["starttime", "auction", "num"],
        )
        return _most(counted)

    def _closed(self, state: Any) -> int:
        """Return the end of the newest window that is over, in parts; before all without a watermark."""
        return _NEVER if state.watermark_ms is None else int(state.watermark_ms // SLIDE_MS)

    def _keep(self, parts: pa.Array, owner: Numbers, state: Any, closed: int) -> None:
        """Set the parts of all keys, and their timers to the end of the first window that is not emitted."""
        state.parts = _lists(parts, owner, state.parts.get().type, state.size)
        first = np.full(state.size, np.iinfo(np.int64).max)
        np.minimum.at(first, owner, _numbers(parts.field("part")))
        held = np.bincount(owner, minlength=state.size) > 0
        state.timer((np.maximum(np.where(held, first, 0), closed) + 1) * SLIDE_MS, where=held)


class MostBids(hf.KeyedTable):
    """Per window: the auctions with the most bids, of those with the most of each partition.

    All counts of a window come in one batch: that in which the watermark has passed its end.
    """

    output = "starttime timestamp, auction long, num long"

    def combine(self, events: pa.Table) -> pa.Table:
        """Compare before the shuffle."""
        return _most(events)

    def on_batch(self, events: pa.Table, state: Any) -> pa.Table:  # noqa: ARG002 - nothing is kept
        """Compare and emit."""
        return _most(events)


def _most(counted: pa.Table) -> pa.Table:
    """Keep the rows with the most bids of each window."""
    windows, of_window = np.unique(_numbers(counted["starttime"]), return_inverse=True)
    return counted.take(_largest(of_window, len(windows), _numbers(counted["num"]), ties=True))


class ProcessingWindows(hf.KeyedTable):
    """Per bidder: the number of bids in each ten seconds of processing time."""

    bids = hf.value("long", default=0)
    begin = hf.value("long")

    output = "bidder long, bid_count long, starttime timestamp, endtime timestamp"
    combined = "bidder long, bids long"

    def combine(self, events: pa.Table) -> pa.Table:
        """Count bids before the shuffle."""
        return events.group_by("bidder").aggregate([([], "count_all")]).rename_columns(["bidder", "bids"])

    def on_batch(self, events: pa.Table, state: Any) -> None:  # noqa: ARG002 - by name through the state
        """Count bids; timers that were due have emitted the windows before."""
        begin = state.now_ms // WINDOW_MS * WINDOW_MS
        state.bids += state.sums("bids")
        state.begin = begin
        state.timer(begin + WINDOW_MS, clock="processing")

    def on_timers(self, timers: pa.Table, state: Any) -> pa.Table:  # noqa: ARG002 - each bidder has one timer
        """Emit and forget."""
        begin = _numbers(state.begin.get())
        over = state.table(
            bid_count=state.bids, starttime=_timestamps(begin), endtime=_timestamps(begin + WINDOW_MS)
        )
        state.clear()
        return over


class FirstSeen(hf.KeyedTable):
    """Per bidder or auction of a group: the ranks of prices that it was seen with.

    Emits what a batch adds to the counts of each group, the distinct ones included: a bidder counts when it
    is seen with a rank for the first time.

    Args:
        group: The columns of a group.
    """

    ranks = hf.value("int", default=0)

    def __init__(self, group: Sequence[str]) -> None:
        self._group = list(group)

    @property
    def output(self) -> str:
        """The columns of the output."""
        counts = ", ".join(f"{name} long" for name in COUNTS)
        return f"{', '.join(f'{name} string' for name in self._group)}, minute long, {counts}"

    def combine(self, events: pa.Table) -> pa.Table:
        """Merge the bids of each bidder and auction."""
        keys = [*self._group, "kind", "id"]
        merged = events.group_by(keys).aggregate([("minute", "max"), *((bids, "sum") for bids in _BIDS)])
        return merged.rename_columns([*keys, "minute", *_BIDS]).select(events.column_names)

    def on_batch(self, events: pa.Table, state: Any) -> pa.Table:  # noqa: ARG002 - by name through the state
        """Find which bidders and auctions are new."""
        bids = [state.sums(name) for name in _BIDS]
        seen = state.ranks.get()
        now = seen | sum((count > 0) << rank for rank, count in enumerate(bids))
        state.ranks = now
        new = [seen == 0, *((now & ~seen) >> rank & 1 for rank in range(len(_BIDS)))]
        is_bidder = _mask(pc.equal(state.keys["kind"], "bidder"))
        added = {
            "total_bids": is_bidder * sum(bids),
            **{f"rank{rank}_bids": is_bidder * count for rank, count in enumerate(bids, 1)},
        }
        for kind, of_kind in (("bidders", is_bidder), ("auctions", ~is_bidder)):
            for name, count in zip(_ranked(kind), new, strict=True):
                added[name] = (of_kind * count).astype(np.int64)
        rows = state.table(minute=state.max("minute", default=0), **added).drop_columns(["kind", "id"])
        merged = rows.group_by(self._group).aggregate(
            [("minute", "max"), *((name, "sum") for name in COUNTS)]
        )
        return merged.rename_columns([*self._group, "minute", *COUNTS])


def _ranked(kind: str) -> list[str]:
    return [f"total_{kind}", *(f"rank{rank}_{kind}" for rank in (1, 2, 3))]


_BIDS: Final = ("bids1", "bids2", "bids3")
COUNTS: Final = (*_ranked("bids"), *_ranked("bidders"), *_ranked("auctions"))


class Report(hf.KeyedTable):
    """Per group: all counts, and the last minute with a bid. Emits the rows that have changed."""

    minute = hf.value("long", default=0)
    total_bids = hf.value("long", default=0)
    rank1_bids = hf.value("long", default=0)
    rank2_bids = hf.value("long", default=0)
    rank3_bids = hf.value("long", default=0)
    total_bidders = hf.value("long", default=0)
    rank1_bidders = hf.value("long", default=0)
    rank2_bidders = hf.value("long", default=0)
    rank3_bidders = hf.value("long", default=0)
    total_auctions = hf.value("long", default=0)
    rank1_auctions = hf.value("long", default=0)
    rank2_auctions = hf.value("long", default=0)
    rank3_auctions = hf.value("long", default=0)

    def on_batch(self, events: pa.Table, state: Any) -> pa.Table:  # noqa: ARG002 - by name through the state
        """Add what a batch has found."""
        state.minute = np.maximum(state.minute, state.max("minute", default=0))
        for name in COUNTS:
            state[name] += state.sums(name)
        return state.table(minute=state.minute, **{name: state[name] for name in COUNTS})


class LastBids(hf.KeyedTable):
    """Per bidder and auction: the last bid; of bids of one millisecond the highest."""

    bid = hf.value("struct<dateTime: timestamp, price: long, channel: string, url: string, extra: string>")

    output = (
        "auction long, bidder long, price long, channel string, url string, dateTime timestamp, extra string"
    )

    def combine(self, events: pa.Table) -> pa.Table:
        """Keep the last bid of each bidder and auction."""
        pair = _numbers(events["bidder"]) << 32 | _numbers(events["auction"])
        pairs, of_pair = np.unique(pair, return_inverse=True)
        return events.take(_largest(of_pair, len(pairs), *_bid_order(events)))

    def on_batch(self, events: pa.Table, state: Any) -> pa.Table:
        """Replace the last bids."""
        last = state.bid.get()
        held = np.flatnonzero(_mask(last.is_valid()))
        rivals = pa.concat_arrays([last.drop_null(), _structs(events, last.type)])
        owner = np.concatenate([held, state.position])
        order = _bid_order(pa.Table.from_arrays(rivals.flatten(), names=rivals.type.names))
        latest = _largest(owner, state.size, *order)
        latest = latest[latest >= len(held)]
        _replace(state.bid, rivals, latest, owner[latest], state.size)
        found = events.take(latest - len(held))
        return found.select([name.split()[0] for name in self.output.split(", ")])


def _bid_order(bids: pa.Table) -> list[Any]:
    """Return the columns that order bids."""
    return [
        *(_numbers(bids[name]) for name in ("dateTime", "price")),
        bids["channel"],
        bids["url"],
        bids["extra"],
    ]


class TopBids(hf.KeyedTable):
    """Per auction: the ten highest bids; of equal prices the earlier ones."""

    top = hf.value(
        "array<struct<bidder: long, price: long, channel: string, url: string, dateTime: timestamp,"
        " extra: string>>"
    )

    output = (
        "auction long, bidder long, price long, channel string, url string, dateTime timestamp, extra string,"
        " rank_number long"
    )

    def combine(self, events: pa.Table) -> pa.Table:
        """Keep the ten highest bids of each auction."""
        auctions, of_auction = np.unique(_numbers(events["auction"]), return_inverse=True)
        best, _ = _top(of_auction, len(auctions), events)
        return events.take(best)

    def on_batch(self, events: pa.Table, state: Any) -> pa.Table:
        """Merge bids into the ten highest; emit those of the auctions that have changed."""
        held = state.top.get()
        kept = pc.list_flatten(held)
        rivals = pa.concat_arrays([kept, _structs(events, kept.type)])
        owner = np.concatenate([_owners(held), state.position])
        best, rank = _top(owner, state.size, pa.Table.from_arrays(rivals.flatten(), names=rivals.type.names))
        changed = np.zeros(state.size, np.bool_)
        changed[owner[best[best >= len(kept)]]] = True
        lists = _lists(rivals.take(pa.array(best)), owner[best], held.type, state.size)
        state.top.set(lists, where=changed)
        best, rank = best[changed[owner[best]]], rank[changed[owner[best]]]
        rows = rivals.take(pa.array(best))
        auctions = state.keys["auction"].take(pa.array(owner[best]))
        return pa.table(
            [auctions, *rows.flatten(), pa.array(rank + 1)],
            names=["auction", *rows.type.names, "rank_number"],
        )


def _top(owner: Numbers, size: int, bids: pa.Table) -> tuple[Numbers, Numbers]:
    """Return the rows of the ten highest bids of each owner, in order, and their ranks from 0."""
    price, at, bidder = (_numbers(bids[name]) for name in ("price", "dateTime", "bidder"))
    order = np.lexsort((bidder, at, -price, owner))
    keys = np.stack([owner, price, at, bidder])[:, order]
    equal = (keys[:, 1:] == keys[:, :-1]).all(axis=0)
    if equal.any():
        tied = order[np.append(equal, False) | np.insert(equal, 0, False)]
        texts = np.zeros((3, len(owner)), np.int64)
        for rank_of, name in zip(texts, ("extra", "url", "channel"), strict=True):
            rank_of[tied] = _ranks(bids[name].take(pa.array(tied)))
        order = np.lexsort((*texts, bidder, at, -price, owner))
    counts = np.bincount(owner, minlength=size)
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    return order[rank < TOP], rank[rank < TOP]


class ExpandedBids(hf.KeyedTable):
    """Per auction: the auction, if it is of category 10, and the bids that came before it.

    Bids on other auctions leave nothing in the state, which a join would keep.
    """

    auction = hf.value(
        "struct<itemName: string, description: string, initialBid: long, reserve: long, opened: timestamp,"
        " expires: timestamp, seller: long, category: long, auction_extra: string>"
    )
    other = hf.value("boolean", default=False)
    early = hf.list(
        "struct<bidder: long, price: long, channel: string, url: string, dateTime: timestamp, extra: string>"
    )

    output = (
        "auction long, bidder long, price long, channel string, url string, dateTime timestamp, extra string,"
        " itemName string, description string, initialBid long, reserve long, opened timestamp,"
        " expires timestamp, seller long, category long, auction_extra string"
    )

    def on_auctions(self, events: pa.Table, state: Any) -> pa.Table:
        """Open auctions, and emit the bids that have waited for them."""
        opened = events.take(np.argsort(state.position))  # one event per auction
        wanted = _numbers(opened["category"]) == 10
        state.auction.set(_structs(opened, state.auction.get().type), where=wanted)
        state.other = ~wanted
        waiting = state.early.get()
        state.early.clear()
        return self._expanded(pc.list_flatten(waiting), _owners(waiting), state)

    def on_bids(self, events: pa.Table, state: Any) -> pa.Table:
        """Emit the bids on auctions of the category, and keep those on unknown auctions."""
        bids = _structs(events, state.early.get().type.value_type)
        known = _mask(state.auction.get().is_valid()) | state.other.get()
        if not known.all():
            state.early.append(bids, where=~known[state.position])
        return self._expanded(bids, state.position, state)

    def _expanded(self, bids: pa.Array, owner: Numbers, state: Any) -> pa.Table:
        auction = state.auction.get()
        wanted = _mask(auction.is_valid())[owner]
        bids, owner = bids.filter(wanted), pa.array(owner[wanted])
        columns = [state.keys.column(0).take(owner), *bids.flatten(), *auction.take(owner).flatten()]
        return pa.table(columns, names=["auction", *bids.type.names, *auction.type.names])


def _structs(rows: pa.Table, kind: pa.StructType) -> pa.Array:
    """Return the columns of a struct's fields as an array of structs."""
    columns = [rows[field.name].combine_chunks().cast(field.type) for field in kind]
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _owners(lists: pa.Array) -> Numbers:
    """Return the index of the list of each element."""
    owners: Numbers = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    return owners


def _lists(values: pa.Array, owner: Numbers, kind: pa.ListType, size: int) -> pa.Array:
    """Return a list for each owner with its values in their order; null for an owner without any."""
    sizes = np.bincount(owner, minlength=size)
    ordered = values.take(pa.array(np.argsort(owner, kind="stable")))
    ends = pa.array(np.append(0, np.cumsum(sizes)), pa.int32())
    return pa.ListArray.from_arrays(ends, ordered, type=kind, mask=pa.array(sizes == 0))


def _mask(column: Any) -> Mask:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    mask: Mask = column.to_numpy(zero_copy_only=False)
    return mask


def _numbers(column: Any) -> Numbers:
    """Return integers, or timestamps in their unit, with 0 for null."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    whole = column.cast(pa.int64()) if kinds.is_timestamp(column.type) else column
    return np.asarray(whole.fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def _ms(times: Any) -> Numbers:
    return _numbers(times) // 1000


def _timestamps(ms: Numbers) -> pa.Array:
    return pa.array(ms * 1000).cast(pa.timestamp("us", "UTC"))


def _ranks(texts: pa.ChunkedArray | pa.Array) -> Numbers:
    """Return the rank of each text in their order; equal texts have equal ranks."""
    return _numbers(pc.rank(texts, tiebreaker="dense"))


def _largest(owner: Numbers, size: int, *columns: Any, ties: bool = False) -> Numbers:
    """Return for each owner the row with the largest values, compared column by column.

    Args:
        owner: The owner of each row.
        size: The number of owners.
        columns: The columns to compare: numbers as numpy arrays, texts as Arrow columns.
        ties: Whether to return all rows with the largest values, not only the first one.
    """
    rows = np.arange(len(owner))
    owners = np.count_nonzero(np.bincount(owner, minlength=size))
    for column in columns:
        if len(rows) == owners:
            break
        of = owner[rows]
        is_text = not isinstance(column, np.ndarray)
        values = _ranks(column.take(pa.array(rows))) if is_text else column[rows]
        largest = np.full(size, np.iinfo(np.int64).min)
        np.maximum.at(largest, of, values)
        rows = rows[values == largest[of]]
    if ties:
        return rows
    _, first = np.unique(owner[rows], return_index=True)
    return rows[first]


def _replace(state: Any, values: pa.Array, rows: Numbers, owner: Numbers, size: int) -> None:
    """Set the state of some keys to rows of an array."""
    at, chosen = np.zeros(size, np.int64), np.zeros(size, np.bool_)
    at[owner], chosen[owner] = rows, True
    state.set(values.take(pa.array(at, mask=~chosen)), where=chosen)
