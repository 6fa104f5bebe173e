"""The column families of a store: each of its keys begins with the number of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from holdfast.checkpoints.state.states import OperatorStates
from holdfast.formats.files.snapshot import SnapshotMetadata, parse_snapshot
from holdfast.formats.rows.row_forms import FAMILY_BYTES
from holdfast.layout import DEFAULT_STORE, Kind, StoreFile
from holdfast.storage.port import Storage

Pairs = list[tuple[bytes, bytes]]


class Families:
    """Which family a key is of, by what it begins with.

    Args:
        numbers: The number of each family by its name; None where the store has none: then every key is of
            the default one, and begins with nothing.
        most: The highest number that was ever given out, if a family that had one may be no more.
    """

    def __init__(self, numbers: Mapping[str, int] | None, most: int = 0) -> None:
        self.numbers: Final = None if numbers is None else dict(numbers)
        self.most: Final = max([most, *(self.numbers or {}).values()])
        self.prefixes: Final[Mapping[str, bytes]] = (
            {DEFAULT_STORE: b""}
            if numbers is None
            else {name: number.to_bytes(FAMILY_BYTES, "little") for name, number in numbers.items()}
        )
        self.names: Final = {prefix: name for name, prefix in self.prefixes.items()}
        self._width: Final = 0 if numbers is None else FAMILY_BYTES

    @classmethod
    def of(
        cls, operator: OperatorStates, store: str, snapshot: SnapshotMetadata | None, *, marked: bool = False
    ) -> Families:
        """Those of a store.

        Args:
            operator: The store's operator.
            store: Its name.
            snapshot: What its base says of itself; None where it has no base that does.
            marked: Whether a changelog has said that the store has families.

        Raises:
            ValueError: The snapshot says something else.
        """
        fields = {} if snapshot is None else snapshot.fields
        numbers = fields.get("columnFamilyMapping") or {}
        if not isinstance(numbers, dict):
            raise ValueError(f"`columnFamilyMapping` is {numbers!r}")
        if not numbers and not marked and not operator.has_families(store):
            return cls(None)
        named = {str(name): int(number) for name, number in numbers.items()}
        return cls(named, int(fields.get("maxColumnFamilyId") or 0))

    @classmethod
    def in_base(
        cls, storage: Storage, operator: OperatorStates, store: str, base: StoreFile | None
    ) -> Families:
        """Those of a store by its base, of which the index is read; only a snapshot of RocksDB's has them."""
        if base is None or base.kind is not Kind.ZIP:
            return cls.of(operator, store, None)
        path = base.render()
        return cls.of(operator, store, parse_snapshot(storage.read(path), path, whole=False))

    @property
    def forgotten(self) -> bool:
        """Whether a family had a number once that is no more: what it had may still be in the files."""
        return self.most > len(self.prefixes)

    def split(self, stored: bytes) -> tuple[str | None, bytes]:
        """The family of a key as it is stored, and the key; None where nothing names that family."""
        return self.names.get(stored[: self._width]), stored[self._width :]

    def sorted_out(self, rows: Pairs) -> Iterator[tuple[bytes, Pairs]]:
        """Rows by what their keys begin with, which they are without."""
        width = self._width
        if not width:
            yield b"", rows
            return
        found: dict[bytes, Pairs] = {}
        for key, value in rows:
            found.setdefault(key[:width], []).append((key[width:], value))
        yield from found.items()

    def counted(self, keys: Iterable[bytes]) -> Mapping[bytes, int]:
        """How many keys there are by what they begin with."""
        width = self._width
        return Counter(key[:width] for key in keys)

    def with_names(self, names: Iterable[str]) -> Families:
        """The same with numbers for more families, given out as Spark does: the default has the first."""
        numbers = dict(self.numbers or {})
        most = self.most
        for name in [DEFAULT_STORE, *sorted(names)]:
            if name not in numbers:
                most += 1
                numbers[name] = most
        return Families(numbers, most)


NO_FAMILIES: Final = Families(None)
