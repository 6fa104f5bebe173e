"""Change the label of a savepoint after it was taken.

The manifest is hashed and never changed. Each label change is a file of its own next to it, with its author
and time. Its number is one higher than the previous one, so of two concurrent changes one fails with a
Conflict.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable
from dataclasses import replace

from holdfast.config.checks import place_word
from holdfast.errors import Conflict
from holdfast.formats.manifest import LabelChange, Manifest
from holdfast.savepoints.catalog import SAVEPOINTS, label_numbers, label_path, load, load_label, savepoint_uri
from holdfast.savepoints.taking import check_label
from holdfast.storage.port import Storage


def label_changes(catalog: Storage, savepoint_id: str) -> tuple[LabelChange, ...]:
    """Return every later label of a savepoint, oldest first.

    Raises:
        Corrupt: One of them is damaged.
    """
    numbers = label_numbers(catalog.list(f"{SAVEPOINTS}/{savepoint_id}").names)
    return tuple(load_label(catalog, savepoint_id, number) for number in numbers)


def plan_label(
    catalog: Storage, savepoint_id: str, label: str | None, *, who: str, when_ms: int
) -> LabelChange:
    """Return the path and the content that `set_label` would write. Changes nothing.

    Args:
        catalog: The catalog.
        savepoint_id: The savepoint.
        label: The new label; None for no label.
        who: The author of the change.
        when_ms: The time of the change, in epoch milliseconds.

    Raises:
        NotFound: The savepoint does not exist.
        Corrupt: Its manifest or its label is damaged.
        Invalid: The label is empty, too long, or contains control characters.
    """
    return _next(catalog, savepoint_id, label, who, when_ms)[1]


def set_label(
    catalog: Storage, savepoint_id: str, label: str | None, *, who: str, when_ms: int
) -> LabelChange:
    """Set the label of a savepoint; nothing is written if it has this label already.

    Args:
        catalog: The catalog.
        savepoint_id: The savepoint.
        label: The new label; None for no label.
        who: The author of the change.
        when_ms: The time of the change, in epoch milliseconds.

    Raises:
        NotFound: The savepoint does not exist or was deleted during the call.
        Corrupt: The manifest or the label is damaged.
        Invalid: The label is not valid.
        Conflict: Another process changed the label at the same time.
    """
    number, change = _next(catalog, savepoint_id, label, who, when_ms)
    if change.label == change.before:
        return change
    path = label_path(savepoint_id, number)
    try:
        catalog.write(path, change.render())
    except Conflict as error:
        uri = savepoint_uri(catalog, savepoint_id)
        raise Conflict(
            "the label was not set, because another process changed it at the same time",
            code="HF-E4051",
            where=uri,
            hint=(
                f"check the current label with `holdfast savepoint show {place_word(uri)}`, then set"
                " the label again"
            ),
        ) from error
    try:
        load(catalog, savepoint_id)
    except Exception:  # it was deleted meanwhile, and nobody would clear up after it
        catalog.delete(path)
        raise
    return change


def current_label(catalog: Storage, manifest: Manifest) -> str | None:
    """Return the current label of a savepoint.

    Raises:
        Corrupt: It is damaged.
    """
    numbers = label_numbers(catalog.list(f"{SAVEPOINTS}/{manifest.savepoint_id}").names)
    return load_label(catalog, manifest.savepoint_id, numbers[-1]).label if numbers else manifest.label


def redact_labels(catalog: Storage, savepoint_id: str, redacted: Callable[[str | None], str | None]) -> None:
    """Redact every later label of a savepoint.

    Args:
        catalog: The catalog.
        savepoint_id: The savepoint.
        redacted: Returns a text without the erased parts; the same text if it has none.
    """
    for number in label_numbers(catalog.list(f"{SAVEPOINTS}/{savepoint_id}").names):
        change = load_label(catalog, savepoint_id, number)
        without = replace(change, label=redacted(change.label), before=redacted(change.before))
        if without != change:
            catalog.write(label_path(savepoint_id, number), without.render(), replace=True)


def person() -> str:
    """Return the author of a change: user and machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have no name for its user
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def _next(
    catalog: Storage, savepoint_id: str, label: str | None, who: str, when_ms: int
) -> tuple[int, LabelChange]:
    check_label(label)
    before = current_label(catalog, load(catalog, savepoint_id))
    numbers = label_numbers(catalog.list(f"{SAVEPOINTS}/{savepoint_id}").names)
    number = numbers[-1] + 1 if numbers else 1
    return number, LabelChange(savepoint_id, label, before, who, when_ms)
