"""A key's group chosen by a function of the user's, in place of the key's hash.

A group is a range of hashes. A key that is placed keeps the rest of its own hash and gets the range of the
group that the function names, so everything below goes on as it would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from holdfast.errors import Invalid
from holdfast.worker.arrays import distinct
from holdfast.worker.runtime.error_context import Place, failure, key_text, line_of
from holdfast.worker.runtime.event_rows import EventRecord, records
from holdfast.worker.state.key_group import group_of, range_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.worker.arrays import Hashes

# So many keys are asked for again where they are stored or have arrived, to see that the answer is the same.
_ASKED = 256


@dataclass(frozen=True, slots=True)
class Placement:
    """What decides the groups of an operator's keys.

    Attributes:
        function: Called with the values of the key columns; gives a group's number.
        key_groups: How many groups there are.
        operator: The user's name of the operator.
    """

    function: Callable[..., Any]
    key_groups: int
    operator: str

    def moved(self, keys: pa.Table, h: Hashes) -> Hashes:
        """The hashes of keys, each brought into the range of the group where the key is to be.

        Raises:
            Failed: The function raised.
            Invalid: It gave something else than a group.
        """
        if not len(h):
            return h
        first, position = distinct(h, keys)
        groups = self._groups(keys.take(pa.array(first)))[position]
        if self.key_groups == 1:
            return h
        lows = np.array([range_of(group, self.key_groups)[0] for group in range(self.key_groups)], np.uint64)
        widths = np.diff(lows, append=np.uint64(0))  # the last group's goes on to where hashes begin anew
        moved: Hashes = lows[groups] + h % widths[groups]
        return moved

    def check(self, keys: pa.Table, h: Hashes) -> None:
        """Ask for some keys again, of which we know where they are.

        Raises:
            Invalid: A key is in another group than the function names now.
        """
        step = -(-len(h) // _ASKED)
        if not step:
            return
        some = keys.take(pa.array(np.arange(0, len(h), step)))
        now, before = self._groups(some), group_of(h[::step], self.key_groups)
        moved = np.flatnonzero(now != before)
        if len(moved):
            at = int(moved[0])
            raise Invalid(
                "the placement is not stable: a key's state is where the function does not place it now",
                where=str(Place(self.operator, key=records(some.slice(at, 1))[0])),
                found=f"group {now[at]}",
                expected=f"group {before[at]}, where its state is",
                hint="a placement depends on nothing but the key, and is the same in every run",
            )

    def _groups(self, keys: pa.Table) -> NDArray[np.int64]:
        return np.array([self._group(key) for key in records(keys)], np.int64)

    def _group(self, key: EventRecord) -> int:
        try:
            group = self.function(*key)
        except Exception as error:
            place = Place(self.operator, key=key, line=line_of(error, self.function))
            raise failure("placement", self.function, error, place) from error
        if type(group) is not int or not 0 <= group < self.key_groups:
            raise Invalid(
                "a placement gives the number of a key group",
                where=f"operator {self.operator}, key {key_text(key)}",
                found=repr(group),
                expected=f"0 to {self.key_groups - 1}",
                hint=f"take the remainder: return number % {self.key_groups}",
            )
        return group
