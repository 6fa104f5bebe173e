"""The events of an auction house, as Nexmark generates them: people, their auctions, and bids.

Of 50 events one is a person, three are auctions and 46 are bids. Ids count upwards, so each event refers to
recent ids, and a few of them to ids that follow shortly. Half of all bids go to one hot auction, which
changes after 100 auctions; three quarters come from a hot bidder, and three quarters of all auctions belong
to a hot seller, which change after 100 people.

The rules are those of https://github.com/nexmark/nexmark with its default settings, with two differences:
equal seeds give equal events, and an id of a bidder is the id of a person. (The published generator adds
the first person's id twice, so its bidders are people who come 50,000 events later.)
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

# Of each 50 events.
PEOPLE: Final = 1
AUCTIONS: Final = 3
EVENTS: Final = 50

FIRST_PERSON: Final = 1000
FIRST_AUCTION: Final = 1000
FIRST_CATEGORY: Final = 10
CATEGORIES: Final = 5

# The people and auctions that an event may refer to: the newest ones, and a few that do not exist yet.
ACTIVE_PEOPLE: Final = 1000
OPEN_AUCTIONS: Final = 100
AHEAD: Final = 10

# One in HOT people or auctions is hot.
HOT: Final = 100

CHANNELS: Final = 10_000
HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
SIDE_ROWS: Final = 10_000

STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES: Final = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
FIRST_NAMES: Final = (
    "Peter",
    "Paul",
    "Luke",
    "John",
    "Saul",
    "Vicky",
    "Kate",
    "Julie",
    "Sarah",
    "Deiter",
    "Walter",
)
LAST_NAMES: Final = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")

# The columns of the files, as Spark's DDL.
SCHEMAS: Final = {
    "person": "id long, name string, emailAddress string, creditCard string, city string, state string,"
    " dateTime timestamp, extra string",
    "auction": "id long, itemName string, description string, initialBid long, reserve long,"
    " dateTime timestamp, expires timestamp, seller long, category long, extra string",
    "bid": "auction long, bidder long, price long, channel string, url string, dateTime timestamp,"
    " extra string",
    "side_input": "key long, value string",
}
STREAMS: Final = ("person", "auction", "bid")

# Spark reads the files of a folder in the order of their times of change.
_FIRST_CHANGE_S: Final = 1_767_225_600
_TEXT: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Timeline:
    """The event times.

    Attributes:
        begin: The time of the first event.
        rate: Events per second of event time.
    """

    begin: dt.datetime = dt.datetime(2015, 7, 15, tzinfo=dt.timezone.utc)
    rate: int = 10_000

    def at_ms(self, number: Numbers) -> Numbers:
        """Return the times of events, in milliseconds since 1970."""
        return int(self.begin.timestamp() * 1000) + number * 1000 // self.rate


class House:
    """The auction house: generates the events of one seed.

    Args:
        seed: Equal seeds give equal events.
        timeline: The event times.
    """

    def __init__(self, seed: int = 0, timeline: Timeline = Timeline()) -> None:
        self._seed = seed
        self._timeline = timeline
        chance = np.random.default_rng(seed)
        letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)
        plain = letters[chance.integers(0, 26, _TEXT)]
        self._letters = plain.tobytes().decode()
        # In names, one in 13 characters is a space.
        self._words = np.where(chance.integers(0, 13, _TEXT) == 0, ord(" "), plain).tobytes().decode()
        self._hot_urls = self._addresses(chance, len(HOT_CHANNELS))
        self._channels = [f"channel-{number}" for number in range(CHANNELS)]
        with_id = (chance.integers(0, 10, CHANNELS) > 0).tolist()
        self._urls = [
            f"{url}&channel_id={_reversed_bits(number)}" if with_id[number] else url
            for number, url in enumerate(self._addresses(chance, CHANNELS))
        ]

    def batch(self, first: int, count: int) -> dict[str, pa.Table]:
        """Return the events with these numbers, one table per kind."""
        chance = np.random.default_rng([self._seed, first])
        number = np.arange(first, first + count)
        rest = number % EVENTS
        return {
            "person": self._people(number[rest < PEOPLE], chance),
            "auction": self._auctions(number[(rest >= PEOPLE) & (rest < PEOPLE + AUCTIONS)], chance),
            "bid": self._bids(number[rest >= PEOPLE + AUCTIONS], chance),
        }

    def _people(self, number: Numbers, chance: Generator) -> pa.Table:
        size = len(number)
        names = [
            f"{first} {last}"
            for first, last in zip(
                _picked(FIRST_NAMES, chance, size), _picked(LAST_NAMES, chance, size), strict=True
            )
        ]
        cards = chance.integers(0, 10_000, (size, 4)).tolist()
        columns = {
            "id": FIRST_PERSON + last_person(number),
            "name": names,
            "emailAddress": [
                f"{user}@{host}.com"
                for user, host in zip(self._texts(chance, size, 7), self._texts(chance, size, 5), strict=True)
            ],
            "creditCard": [" ".join(f"{part:04}" for part in card) for card in cards],
            "city": _picked(CITIES, chance, size),
            "state": _picked(STATES, chance, size),
            "dateTime": _times(self._timeline.at_ms(number)),
        }
        texts = (columns["name"], columns["emailAddress"], columns["creditCard"], columns["city"])
        used = np.sum([_lengths(column) for column in texts], axis=0) + 10
        return pa.table({**columns, "extra": self._extra(chance, used, 200)})

    def _auctions(self, number: Numbers, chance: Generator) -> pa.Table:
        size = len(number)
        hot = chance.integers(0, 4, size) > 0
        seller = np.where(hot, last_person(number) // HOT * HOT, _some_person(number, chance))
        initial = _prices(chance, size)
        at = self._timeline.at_ms(number)
        # On average, as many auctions begin during an auction as can be open.
        horizon = self._timeline.at_ms(number + OPEN_AUCTIONS * EVENTS // AUCTIONS) - at
        columns = {
            "id": FIRST_AUCTION + last_auction(number),
            "itemName": self._texts(chance, size, 20),
            "description": self._texts(chance, size, 100),
            "initialBid": initial,
            "reserve": initial + _prices(chance, size),
            "dateTime": _times(at),
            "expires": _times(at + 1 + chance.integers(0, np.maximum(horizon * 2, 1))),
            "seller": FIRST_PERSON + seller,
            "category": FIRST_CATEGORY + chance.integers(0, CATEGORIES, size),
        }
        used = 48 + _lengths(columns["itemName"]) + _lengths(columns["description"])
        return pa.table({**columns, "extra": self._extra(chance, used, 500)})

    def _bids(self, number: Numbers, chance: Generator) -> pa.Table:
        size = len(number)
        newest = last_auction(number)
        oldest = np.maximum(newest - OPEN_AUCTIONS, 0)
        any_auction = oldest + chance.integers(0, newest - oldest + 1 + AHEAD)
        hot_auction = chance.integers(0, 2, size) > 0
        hot_bidder = chance.integers(0, 4, size) > 0
        # The person after the hot seller, so the two are never the same.
        bidder = np.where(hot_bidder, last_person(number) // HOT * HOT + 1, _some_person(number, chance))
        price = _prices(chance, size)
        hot_channel = (chance.integers(0, 2, size) > 0).tolist()
        channel = chance.integers(0, CHANNELS, size).tolist()
        hot = len(HOT_CHANNELS)
        return pa.table(
            {
                "auction": FIRST_AUCTION + np.where(hot_auction, newest // HOT * HOT, any_auction),
                "bidder": FIRST_PERSON + bidder,
                "price": price,
                "channel": [
                    HOT_CHANNELS[which % hot] if is_hot else self._channels[which]
                    for is_hot, which in zip(hot_channel, channel, strict=True)
                ],
                "url": [
                    self._hot_urls[which % hot] if is_hot else self._urls[which]
                    for is_hot, which in zip(hot_channel, channel, strict=True)
                ],
                "dateTime": _times(self._timeline.at_ms(number)),
                "extra": self._extra(chance, np.full(size, 32), 100),
            }
        )

    def _texts(self, chance: Generator, size: int, limit: int) -> list[str]:
        """Return names of at least three and less than `limit` characters, trimmed."""
        return [text.strip() for text in _slices(self._words, chance, chance.integers(3, limit, size))]

    def _extra(self, chance: Generator, used: Numbers, average: int) -> list[str]:
        """Return texts that fill events up to an average number of bytes, give or take 20 %."""
        room = np.maximum(average - used, 0)
        spread = np.round(room * 0.2).astype(np.int64)
        return _slices(self._letters, chance, room - spread + chance.integers(0, np.maximum(2 * spread, 1)))

    def _addresses(self, chance: Generator, size: int) -> list[str]:
        parts = [text.replace(" ", "_") for text in self._texts(chance, 3 * size, 5)]
        return [
            f"https://www.nexmark.com/{'/'.join(parts[at : at + 3])}/item.htm?query=1"
            for at in range(0, len(parts), 3)
        ]


def write(
    folder: Path,
    *,
    rows: int,
    batches: int,
    seed: int = 0,
    timeline: Timeline = Timeline(),
) -> None:
    """Write the events as Parquet files: for each stream one file per batch, and the side input of q13.

    Args:
        folder: Gets the folders `person`, `auction`, `bid` and `side_input`.
        rows: Events per batch, of all three kinds together.
        batches: The number of batches.
        seed: The seed of the events.
        timeline: The event times.
    """
    house = House(seed, timeline)
    for name in SCHEMAS:
        (folder / name).mkdir(parents=True)
    side = {"key": np.arange(SIDE_ROWS), "value": [str(number) for number in range(SIDE_ROWS)]}
    pq.write_table(pa.table(side), folder / "side_input" / "0.parquet")
    for number in range(batches):
        for name, table in house.batch(number * rows, rows).items():
            path = folder / name / f"{number:05}.parquet"
            pq.write_table(table, path)
            os.utime(path, (_FIRST_CHANGE_S + number, _FIRST_CHANGE_S + number))


def write_csv(folder: Path, target: Path, files: Sequence[int], parts: int) -> None:
    """Write the events again as text, in `STREAM/PART.csv`: a row of each file in turn to each part.

    Args:
        folder: The folder that `write` has filled.
        target: Gets the text.
        files: The numbers of the batches to write.
        parts: The number of files per stream.
    """
    options = pc.WriteOptions(include_header=False)
    for name in SCHEMAS:
        (target / name).mkdir(parents=True)
        paths = sorted((folder / name).glob("*.parquet"))
        chosen = paths if name == "side_input" else [paths[number] for number in files]
        writers = [(target / name / f"{part}.csv").open("wb") for part in range(parts)]
        for path in chosen:
            table = pq.read_table(path)
            for at, column in enumerate(table.column_names):
                if pa.types.is_timestamp(table[column].type):
                    table = table.set_column(at, column, table[column].cast(pa.timestamp("ms")))
            for part, writer in enumerate(writers):
                pc.write_csv(table.take(np.arange(part, len(table), parts)), writer, options)
        for writer in writers:
            writer.close()


def last_person(number: Numbers) -> Numbers:
    """Return the newest person at an event, counted from 0."""
    return number // EVENTS * PEOPLE + np.minimum(number % EVENTS, PEOPLE - 1)


def last_auction(number: Numbers) -> Numbers:
    """Return the newest auction at an event, counted from 0; -1 before the first one."""
    offset = np.minimum(number % EVENTS - PEOPLE, AUCTIONS - 1)
    return number // EVENTS * AUCTIONS + np.maximum(offset, -1)


def _some_person(number: Numbers, chance: Generator) -> Numbers:
    people = last_person(number) + 1
    active = np.minimum(people, ACTIVE_PEOPLE)
    return people - active + chance.integers(0, active + AHEAD)


def _prices(chance: Generator, size: int) -> Numbers:
    """Return prices from 1 to 1,000,000 dollars, in cents, as many of each magnitude."""
    return np.round(10.0 ** (chance.random(size) * 6) * 100).astype(np.int64)


def _slices(text: str, chance: Generator, lengths: Numbers) -> list[str]:
    starts = chance.integers(0, _TEXT - 1024, len(lengths)).tolist()
    return [text[start : start + size] for start, size in zip(starts, lengths.tolist(), strict=True)]


def _picked(values: Sequence[str], chance: Generator, size: int) -> list[str]:
    return [values[at] for at in chance.integers(0, len(values), size).tolist()]


def _lengths(texts: Any) -> Numbers:
    return np.array([len(text) for text in texts], np.int64)


def _times(ms: Numbers) -> pa.Array:
    return pa.array(ms * 1000).cast(pa.timestamp("us", "UTC"))


def _reversed_bits(number: int) -> int:
    """Return a 32-bit number with its bits in reverse order, without its sign."""
    value = int(f"{number:032b}"[::-1], 2)
    return value if value < 1 << 31 else (1 << 32) - value
