"""The addresses of checkpoints that the servers of a state home serve, for other commands.

A server records them while it lives. Its lock, which the kernel releases with the process, shows whether it
does, so a killed server leaves nothing that counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.formats.text import foreign_json
from holdfast.storage.file_lock import FileLock
from holdfast.storage.local import LocalStorage

_FOLDER: Final = "serving"


class ServedAddresses:
    """The record of one server.

    Args:
        home: The state home.
        addresses: The addresses, absolute.
    """

    def __init__(self, home: Path, addresses: Sequence[str]) -> None:
        self._addresses = tuple(addresses)
        self._folder = home / _FOLDER
        self._record = self._folder / f"{os.urandom(8).hex()}.json"
        self._lock = FileLock(self._record.with_suffix(".lock"))

    def publish(self) -> None:
        """Record the addresses, until this process withdraws them or ends."""
        if self._addresses:
            self._lock.take()
            data = json.dumps({"addresses": self._addresses}).encode()
            LocalStorage(self._folder).write(self._record.name, data)
            for left in self._folder.glob("*.json"):
                if not FileLock(left.with_suffix(".lock")).is_held():
                    _remove(left)

    def withdraw(self) -> None:
        """Remove the record."""
        if self._addresses:
            self._record.unlink(missing_ok=True)
            self._lock.release()
            self._lock.clear()


def served_addresses(home: Path) -> tuple[str, ...]:
    """Return the addresses that live servers of a state home serve; changes nothing.

    Cost: lists one directory, and reads one small file for each server with addresses.
    """
    addresses: dict[str, None] = {}
    for record in sorted((home / _FOLDER).glob("*.json")):
        if FileLock(record.with_suffix(".lock")).is_held():
            with suppress(OSError, ValueError):
                written = foreign_json(record.read_text("utf-8"))
                given = written.get("addresses") if isinstance(written, dict) else None
                listed = given if isinstance(given, list) else []
                addresses.update(dict.fromkeys(text for text in listed if isinstance(text, str)))
    return tuple(addresses)


def _remove(record: Path) -> None:
    """Remove the record of a server that has died."""
    with suppress(OSError):
        record.unlink()
    FileLock(record.with_suffix(".lock")).clear()
