"""What people inherit from to process events by key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


class Keyed:
    """Processes events one by one, or key by key, with state for each key.

    States are class attributes: `visits = hf.value(int, default=0)`. Handlers are methods; define

    - `on_event(self, event, state, ctx)`: called for each event, in the order in which the events of its
      key arrived, or instead of it
    - `on_key(self, key, events, state, ctx)`: called once a batch for each key that has events, with the
      list of them. With connected streams neither is there, but one `on_<stream>(self, event, state,
      ctx)` for each stream.
    - `on_timer(self, timer, state, ctx)`: called once for each timer that is due, in the order of their
      times; also for keys that have no events. Timers that are due come before the batch's events.
    - `on_end(self, state, ctx)`: called once a batch for each key that had events, after all of them; for
      rows that tell how things stand rather than what each event did.
    - `merge(self, state, part)`: brings what `on_event` made of some of a batch's events, starting from
      nothing, into the key's state. With it the events of a hot key can be taken together before the
      shuffle, see `split_hot`. `on_event` gives no rows then, `on_end` does; and it must not matter how
      events are divided into parts, or in which order these are merged.
    - `on_start(self, ctx)`: called once in each task before anything else, to open what the handlers
      use. `ctx` has no key there.

    A handler returns nothing, one row, an iterable of rows, or is a generator. A row is a dict by the
    names of the output's columns, or a tuple in their order. `state` and `event` are good until the
    handler returns.

    Not guaranteed: an order between keys; that a batch runs once. After a failure it runs again from the
    state before it, so what a handler does outside of `state` and its rows happens again. Every task has
    an instance of its own, unpickled from the one that was handed over.

    The classic mistake is to keep something per key in `self`: one instance serves many keys, and
    nothing of it is in a checkpoint.
    """

    def on_start(self, ctx: Any) -> None:
        """Prepare a task; does nothing unless it is overridden."""


class Operator(Keyed):
    """Processes events with state of a parallel instance, not of a key; see `hf.operate`.

    States are lists alone: `hf.list(…)`, which is split evenly when the number of instances changes, and
    `hf.union_list(…)`, of which each instance is given all. Handlers are those of `Keyed`, where the key is
    the instance: `ctx.key.instance` is its number, from zero. Besides, there may be

    - `on_restore(self, state, ctx)`: called for each instance in the first batch after their number has
      changed, once it has been given its lists; to drop what it does not need, or to set timers, which
      instances do not inherit.

    The classic mistake is a buffer in `self`: a batch that fails would be lost with it, and a batch that
    runs again would be in it twice.
    """


class KeyedTable:
    """Processes all events of a partition's batch as one Arrow table, with state for each key.

    States are class attributes, as in `Keyed`. Define

    - `on_batch(self, events, state)`: called once a batch and partition with a `pyarrow.Table` of the
      events, in the order of their arrival within each key. It returns a table in the output's schema,
      or None. With connected streams there is one `on_<stream>(self, events, state)` for each instead.
    - `on_timers(self, timers, state)`, if there are timers: called before it with a table of the key
      columns, `name`, `clock` and `at`, in the order of the times. It returns a table or None.
    - `combine(self, events)`, if events of one stream can be merged early, which saves most of the
      shuffle where keys come often.

    Not guaranteed: which keys come in one call, and that a batch runs once, as in `Keyed`. A large batch
    may be divided by keys and arrive in several calls.

    The classic mistake is a Python loop over the rows: `Keyed` does that faster.

    Attributes:
        combined: The columns that `combine` returns, as in "customer string, spend double", where they
            are others than those of the events. The columns of the key must be among them.
    """

    combined: str | None = None

    def combine(self, events: pa.Table) -> pa.Table:
        """Merge events before the shuffle; unless it is overridden nothing is merged or called.

        Called with part of a batch. It sees neither state nor all events of a key, and how events are
        divided among its calls is not defined, so `on_batch` has to merge again.
        """
        return events
