"""A manifest guards itself."""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

import pytest

from holdfast.errors import Corrupt, HoldfastError, Unsupported
from holdfast.formats.manifest import SavedFile, manifest_of, parse_manifest

FIELDS: dict[str, Any] = {
    "id": "20260305T080000.000Z-1f0c33aa-b41-9d2e",
    "label": "vor dem Umzug – zweiter Versuch",
    "created_ms": 1_772_697_600_000,
    "checkpoint": "file:///data/checkpoints/orders",
    "format": 1,
    "query_id": "1f0c33aa-0000-4000-8000-000000000000",
    "batch": 41,
    "new_bytes": 12,
    "operators": [{"name": "dedupe", "stores": []}],
    "something newer": {"kept": True},
}


def saved(path: str) -> SavedFile:
    return SavedFile(path, 7, hashlib.sha256(path.encode()).hexdigest())


FILES = [saved(path) for path in ("commits/41", "metadata", "offsets/40", "offsets/41", "state/0/0/42.zip")]


def test_it_reads_as_it_was_written() -> None:
    manifest = manifest_of(FIELDS, FILES)
    data = manifest.render()
    assert parse_manifest(data, "m") == manifest
    assert json.loads(data)["something newer"] == {"kept": True}
    assert (manifest.batch_id, manifest.size_bytes, manifest.label) == (41, 35, FIELDS["label"])


def test_its_last_field_is_the_hash_of_all_before_it() -> None:
    data = manifest_of(FIELDS, FILES).render()
    body, _, tail = data.rpartition(b'"sha256":')
    assert json.loads(b"[" + tail.strip().removesuffix(b"}") + b"]") == [hashlib.sha256(body).hexdigest()]


def test_no_changed_byte_goes_unseen() -> None:
    data = manifest_of(FIELDS, FILES).render()
    rng = random.Random(41)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << rng.randrange(8)
        with pytest.raises(HoldfastError) as error:
            parse_manifest(bytes(changed), "m")
        assert isinstance(error.value, (Corrupt, Unsupported)), at
    for length in range(0, len(data), 7):
        with pytest.raises(Corrupt):
            parse_manifest(data[:length], "m")
    with pytest.raises(Corrupt):
        parse_manifest(data + b"\n", "m")


@pytest.mark.parametrize("path", ["/etc/passwd", "../above", "state/../../above", "", "a//b", "./a"])
def test_no_path_leads_out_of_the_checkpoint(path: str) -> None:
    data = manifest_of(FIELDS, sorted([*FILES, saved(path)], key=lambda file: file.path)).render()
    with pytest.raises(Corrupt, match="manifest"):
        parse_manifest(data, "m")


@pytest.mark.parametrize("missing", ["metadata", "offsets/41", "commits/41"])
def test_what_every_savepoint_has_must_be_there(missing: str) -> None:
    with pytest.raises(Corrupt) as error:
        manifest_of(FIELDS, [file for file in FILES if file.path != missing])
    assert missing in str(error.value)


def test_no_file_twice_and_all_in_order() -> None:
    for files in ([*FILES, FILES[-1]], FILES[::-1]):
        with pytest.raises(Corrupt, match="damaged"):
            manifest_of(FIELDS, files)


def test_a_newer_format_is_not_guessed_at() -> None:
    data = manifest_of(FIELDS, FILES).render().replace(b'"format":1', b'"format":2')
    with pytest.raises(Unsupported, match="unknown savepoint format"):
        parse_manifest(data, "m")
