"""The protocol by which a leader rescales a job, and by which later leaders finish or discard it.

A model of its own, with no code of the implementation, explores all interleavings of three leaders. Any
leader may be suspended before any step and continue at any later moment, or never (a kill). The next leader
may be elected at any moment. A driver commits only in the term of its leader, since it holds the checkpoint's
lock.

Whenever a driver starts, its checkpoint has all batches that were ever committed, and what is kept of a
rescale is the former checkpoint. The model without one of its rules finds a loss; otherwise the rule would
have no reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

LEADERS = (1, 2, 3)
# The leaders that rescale after their first batch.
RESCALING = (1, 2)


class Lost(Exception):
    """A driver starts with a checkpoint that lacks committed batches."""


@dataclass(frozen=True)
class World:
    """The shared state, and where each leader is in its program.

    Attributes:
        term: The newest term that was won.
        records: The newest record of each term: None, `making` or `decided`.
        names: The directory of each name on the disk.
        numbers: True for a published successor, False for a void one.
        content: The batches of each directory.
        committed: All batches.
        at: The next step of each leader, with its values.
    """

    term: int = 0
    records: tuple[tuple[int, Any], ...] = ()
    names: tuple[tuple[str, int], ...] = (("here", 0),)
    numbers: tuple[tuple[int, bool], ...] = ()
    content: tuple[tuple[int, ...], ...] = ((),)
    committed: tuple[int, ...] = ()
    at: tuple[tuple[Any, ...], ...] = (("stand",),) * len(LEADERS)

    def go(self, leader: int, *step: Any) -> World:
        at = list(self.at)
        at[leader - 1] = step
        return replace(self, at=tuple(at))

    def named(self, **changes: int | None) -> World:
        names = {**dict(self.names), **changes}
        kept = {name: place for name, place in names.items() if place is not None}
        return replace(self, names=tuple(sorted(kept.items())))

    def numbered(self, number: int, *, published: bool) -> World:
        numbers = {number: published, **dict(self.numbers)}  # whoever is first has decided
        return replace(self, numbers=tuple(sorted(numbers.items())))

    @property
    def newest_record(self) -> Any:
        return dict(self.records)[max(dict(self.records))] if self.records else None


class Protocol:
    """The program of each leader; subclasses know how a checkpoint is replaced.

    Args:
        without: The rules that are left out.
    """

    def __init__(self, *without: str) -> None:
        self.without = without

    def current(self, world: World) -> int:
        """Return the directory in which a driver starts."""
        raise NotImplementedError

    def finish(self, world: World, leader: int, record: Any) -> World:
        """Go to the first step of a decided rescale."""
        raise NotImplementedError

    def discard(self, world: World, operation: int) -> World:
        raise NotImplementedError

    def writing(self, world: World, leader: int, record: Any, *then: Any) -> World:
        return world.go(leader, "check", record, then)

    def steps(self, world: World, leader: int) -> Iterator[World]:
        """Return what the next step of a leader may lead to."""
        name, *values = world.at[leader - 1]
        if name not in ("lost", "end"):
            yield from getattr(self, f"on_{name}")(world, leader, *values)

    def on_stand(self, world: World, leader: int) -> Iterator[World]:
        if world.term == leader - 1:
            yield replace(world, term=leader).go(leader, "look")

    def on_look(self, world: World, leader: int) -> Iterator[World]:
        record = world.newest_record
        if record is None:
            yield world.go(leader, "run")
        elif record[0] == "decided":
            yield self.finish(world, leader, record)
        elif "record before discard" in self.without:
            yield world.go(leader, "discard", record[1])
        else:
            yield self.writing(world, leader, None, "discard", record[1])

    def on_check(self, world: World, leader: int, *values: Any) -> Iterator[World]:
        yield world.go(leader, "write", *values) if world.term == leader else world.go(leader, "lost")

    def on_write(self, world: World, leader: int, record: Any, then: Any) -> Iterator[World]:
        records = {**dict(world.records), leader: record}
        yield replace(world, records=tuple(sorted(records.items()))).go(leader, "written", then)

    def on_written(self, world: World, leader: int, then: Any) -> Iterator[World]:
        is_lost = world.term != leader and "check after writing" not in self.without
        yield world.go(leader, "lost") if is_lost else world.go(leader, *then)

    def on_discard(self, world: World, leader: int, operation: int) -> Iterator[World]:
        yield self.discard(world, operation).go(leader, "run")
        yield world.go(leader, "run")  # the storage did not answer

    def operation(self, world: World, leader: int) -> int:
        """Return the number by which a rescale of this leader names its directory."""
        del world
        return leader

    def on_make(self, world: World, leader: int, operation: int) -> Iterator[World]:
        content = (*world.content, world.content[self.current(world)])
        names = dict.fromkeys((f"made{operation}", f"new{leader}"), len(world.content))
        made = replace(world, content=content).named(**names)
        yield made.go(leader, "decide", len(world.content), operation)

    def on_decide(self, world: World, leader: int, made: int, operation: int) -> Iterator[World]:
        decision = ("decided", operation, self.current(world), made, len(world.content[made]))
        if "record of the decision" in self.without:
            yield self.finish(world, leader, decision)
        else:
            yield self.writing(world, leader, decision, "finish", decision)

    def on_finish(self, world: World, leader: int, record: Any) -> Iterator[World]:
        yield self.finish(world, leader, record)

    def on_run(self, world: World, leader: int) -> Iterator[World]:
        yield self.run(world, leader)

    def run(self, world: World, leader: int) -> World:
        """Start a driver, which commits one batch."""
        if world.term != leader:
            return world.go(leader, "lost")
        place = self.current(world)
        if world.content[place] != world.committed:
            raise Lost
        names = dict(world.names)
        for operation in RESCALING:
            # What is kept of a finished rescale is the former checkpoint.
            if f"kept{operation}" in names and names[f"kept{operation}"] == names[f"new{operation}"]:
                raise Lost
        committed = (*world.committed, len(world.committed))
        content = list(world.content)
        content[place] = committed
        world = replace(world, committed=committed, content=tuple(content))
        own = dict(world.records).get(leader)
        if leader not in RESCALING or own is not None or f"new{leader}" in names:
            return world.go(leader, "end")
        operation = self.operation(world, leader)
        return self.writing(world, leader, ("making", operation), "make", operation)


class OnDisk(Protocol):
    """The directories are exchanged, by a name that contains the term."""

    def current(self, world: World) -> int:
        return dict(world.names)["here"]

    def finish(self, world: World, leader: int, record: Any) -> World:
        return world.go(leader, "list", record)

    def discard(self, world: World, operation: int) -> World:
        return world.named(**dict.fromkeys(self.found(world, operation)))

    def found(self, world: World, operation: int) -> list[str]:
        made = f"made{operation}"
        return sorted(name for name in dict(world.names) if name == made or name.startswith(f"{made}.t"))

    def own(self, leader: int, operation: int) -> str:
        return f"made{operation}" + ("" if "own name" in self.without else f".t{leader}")

    def on_list(self, world: World, leader: int, record: Any) -> Iterator[World]:
        operation = record[1]
        found, own = self.found(world, operation), self.own(leader, operation)
        if f"kept{operation}" in dict(world.names) or not found:
            yield self.writing(world, leader, None, "run")
        elif found[-1] == own:
            yield world.go(leader, "compare", record)
        elif found[-1] > own:
            yield world.go(leader, "lost")
        else:
            yield world.go(leader, "rename", record, found[-1])

    def on_rename(self, world: World, leader: int, record: Any, name: str) -> Iterator[World]:
        names = dict(world.names)
        if name in names:
            renamed = world.named(**{name: None, self.own(leader, record[1]): names[name]})
            yield renamed.go(leader, "compare", record)
        else:
            yield world.go(leader, "list", record)

    def on_compare(self, world: World, leader: int, record: Any) -> Iterator[World]:
        _, operation, old, new, batch = record
        here = dict(world.names)["here"]
        is_same = len(world.content[old]) == batch or "batch at the decision" in self.without
        if here == old and is_same:
            yield world.go(leader, "exchange", record)
        elif here == new:
            yield world.go(leader, "keep", record)
        else:
            yield self.writing(world.named(**{self.own(leader, operation): None}), leader, None, "run")

    def on_exchange(self, world: World, leader: int, record: Any) -> Iterator[World]:
        names, own = dict(world.names), self.own(leader, record[1])
        if own in names:
            yield world.named(here=names[own], **{own: names["here"]}).go(leader, "keep", record)
        else:
            yield world.go(leader, "lost")

    def on_keep(self, world: World, leader: int, record: Any) -> Iterator[World]:
        names, own = dict(world.names), self.own(leader, record[1])
        if own in names:
            kept = world.named(**{own: None, f"kept{record[1]}": names[own]})
            yield self.writing(kept, leader, None, "run")
        else:
            yield world.go(leader, "lost")


class InBucket(Protocol):
    """A number is published or made void, once; the directory of a void number is deleted.

    A number is free for the next rescale until it is published or void, or has a directory.
    """

    def operation(self, world: World, leader: int) -> int:
        used = {*dict(world.numbers), *self.numbers_made(world)}
        return min({*LEADERS} - used)

    def numbers_made(self, world: World) -> list[int]:
        return [int(name.removeprefix("made")) for name in dict(world.names) if name.startswith("made")]

    def current(self, world: World) -> int:
        published = [number for number, is_valid in world.numbers if is_valid]
        name = f"made{max(published)}" if published else "here"
        if name not in dict(world.names):
            raise Lost
        return dict(world.names)[name]

    def finish(self, world: World, leader: int, record: Any) -> World:
        return world.go(leader, "compare", record)

    def on_discard(self, world: World, leader: int, operation: int) -> Iterator[World]:
        yield from self.on_undo(world, leader, operation, "run")
        yield world.go(leader, "run")  # the storage did not answer

    def on_undo(self, world: World, leader: int, operation: int, *then: Any) -> Iterator[World]:
        if "void before deletion" not in self.without:
            world = world.numbered(operation, published=False)
        is_used = dict(world.numbers).get(operation)
        yield world.go(leader, *then) if is_used else world.go(leader, "delete", operation, *then)

    def on_delete(self, world: World, leader: int, operation: int, *then: Any) -> Iterator[World]:
        yield world.named(**{f"made{operation}": None}).go(leader, *then)

    def on_make(self, world: World, leader: int, operation: int) -> Iterator[World]:
        if world.term != leader:
            yield world.go(leader, "undo", operation, "lost")
        if operation not in self.numbers_made(world):
            yield from super().on_make(world, leader, operation)
        else:
            yield world.go(leader, "undo", operation, "lost")

    def on_compare(self, world: World, leader: int, record: Any) -> Iterator[World]:
        _, operation, old, _, batch = record
        if operation in dict(world.numbers):
            yield self.writing(world, leader, None, "run")
        elif len(world.content[old]) == batch:
            yield world.go(leader, "publish", record)
        else:
            yield self.writing(world.numbered(operation, published=False), leader, None, "run")

    def on_publish(self, world: World, leader: int, record: Any) -> Iterator[World]:
        yield self.writing(world.numbered(record[1], published=True), leader, None, "run")


class Alone(InBucket):
    """Supervisors without elections, which know nothing of each other but the lease.

    Before it publishes, the owner looks at its lease. The next owner makes void what it finds unpublished.
    """

    def on_look(self, world: World, leader: int) -> Iterator[World]:
        for number in () if "void numbers" in self.without else self.numbers_made(world):
            world = world.numbered(number, published=False)
        yield world.go(leader, "run")

    def on_decide(self, world: World, leader: int, made: int, operation: int) -> Iterator[World]:
        del made
        is_owner = world.term == leader
        yield (
            world.go(leader, "publish", operation)
            if is_owner
            else world.go(leader, "undo", operation, "lost")
        )

    def on_publish(self, world: World, leader: int, operation: int) -> Iterator[World]:
        yield world.numbered(operation, published=True).go(leader, "run")

    def writing(self, world: World, leader: int, record: Any, *then: Any) -> World:
        del record
        return world.go(leader, *then)


def explored(protocol: Protocol) -> int:
    """Return the number of reachable worlds.

    Raises:
        Lost: Committed batches are lost in one of them.
    """
    seen, left = {World()}, [World()]
    while left:
        world = left.pop()
        for leader in LEADERS:
            for each in protocol.steps(world, leader):
                if each not in seen:
                    seen.add(each)
                    left.append(each)
    return len(seen)


@pytest.mark.parametrize("protocol", [OnDisk, InBucket, Alone])
def test_no_interleaving_loses_a_batch(protocol: type[Protocol]) -> None:
    assert explored(protocol()) > 100


RULES = [
    (OnDisk, ("own name",)),
    (OnDisk, ("check after writing",)),
    # Each of the two is enough.
    (OnDisk, ("record before discard", "batch at the decision")),
    (OnDisk, ("record of the decision",)),
    (InBucket, ("check after writing",)),
    (InBucket, ("void before deletion",)),
    (Alone, ("void numbers",)),
    (Alone, ("void before deletion",)),
]


@pytest.mark.parametrize(("protocol", "rules"), RULES)
def test_without_its_rules_a_batch_is_lost(protocol: type[Protocol], rules: tuple[str, ...]) -> None:
    with pytest.raises(Lost):
        explored(protocol(*rules))
