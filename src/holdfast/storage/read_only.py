"""A storage that is there to be read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NoReturn

from holdfast.storage.port import Storage


class ReadOnly(ABC):
    """Refuses every change; what it is, and what to do instead, says the kind of storage."""

    def write(self, path: str, data: bytes, *, replace: bool = False) -> None:  # noqa: ARG002 - the port's
        """Refused."""
        self._refuse(path)

    def copy(self, source: str, target: str, *, origin: Storage | None = None) -> None:  # noqa: ARG002 - the port's
        """Refused."""
        self._refuse(target)

    def delete(self, path: str) -> None:
        """Refused."""
        self._refuse(path)

    @abstractmethod
    def _refuse(self, path: str) -> NoReturn:
        """Raise the error for a change of this path."""
