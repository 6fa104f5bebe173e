"""A short name for a schema, by which stored pages say how they were written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds


def fingerprint(schema: pa.Schema) -> str:
    """Give 16 hex digits that change with any name, type, nullability, order or metadata of a schema.

    The same for every version of Arrow, and for types that differ only in the name of a list's element.
    """
    form = [[_form(each) for each in schema], _metadata(schema.metadata)]
    text = json.dumps(form, separators=(",", ":"), ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _form(field: pa.Field) -> list[Any]:
    return [field.name, field.nullable, _metadata(field.metadata), _type_form(field.type)]


def _type_form(read: pa.DataType) -> Any:
    if kinds.is_list(read) or kinds.is_large_list(read):
        return ["array", _type_form(read.value_type), read.value_field.nullable]
    if kinds.is_map(read):
        return ["map", _type_form(read.key_type), _type_form(read.item_type), read.item_field.nullable]
    if kinds.is_struct(read):
        return ["struct", [_form(each) for each in read]]
    return str(read)


def _metadata(metadata: Mapping[bytes, bytes] | None) -> list[list[str]]:
    return sorted([key.hex(), value.hex()] for key, value in (metadata or {}).items())
