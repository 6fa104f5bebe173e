"""Heads of changelogs, as Spark writes them: the product reads them, and writes none."""

from __future__ import annotations

from holdfast.formats.files.compression import encode_utf
from holdfast.formats.files.records import Head
from holdfast.formats.text import compact


def render_head(head: Head) -> bytes:
    """The bytes of a head; version 1 has none, and versions 3 and 4 have a lineage."""
    if head.version == 1:
        return b""
    rendered = encode_utf(f"v{head.version}")
    if head.version in (3, 4):
        lineage = [{"version": link.version, "checkpointUniqueId": link.unique_id} for link in head.lineage]
        rendered += encode_utf(compact(lineage))
    return rendered
