"""How a field deep inside a state's type is called.

Names are joined by dots, and a name with a dot in it stands in backquotes. An array's elements are called
`element`, the two sides of a map `key` and `value`, as in Spark's `ALTER TABLE`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from holdfast.errors import Invalid
from holdfast.worker.declarations.value_checks import check_value

Former = Mapping[str, "str | Sequence[str]"]


def join_path(path: str, name: str) -> str:
    """Add a name to the path of a field; a name with a dot in it stands in backquotes."""
    part = f"`{name}`" if "." in name else name
    return f"{path}.{part}" if path else part


def paths_of(declared: pa.DataType, path: str = "") -> dict[str, pa.Field]:
    """All fields of all structs within a type, by path."""
    paths: dict[str, pa.Field] = {}
    if kinds.is_list(declared):
        paths.update(paths_of(declared.value_type, join_path(path, "element")))
    elif kinds.is_map(declared):
        paths.update(paths_of(declared.key_type, join_path(path, "key")))
        paths.update(paths_of(declared.item_type, join_path(path, "value")))
    elif kinds.is_struct(declared):
        for field in declared:
            here = join_path(path, field.name)
            paths[here] = field
            paths.update(paths_of(field.type, here))
    return paths


def check_paths(
    name: str, declared: pa.DataType, fields_were: Former, field_defaults: Mapping[str, Any]
) -> None:
    """Check a state's former names and defaults of fields against its type.

    Raises:
        Invalid: A path is of no field, a default is not of its field's type, or a former name is in use.
    """
    fields = paths_of(declared)
    for option, paths in (("fields_were", fields_were), ("field_defaults", field_defaults)):
        for path in paths:
            if path not in fields:
                raise Invalid(
                    f"{option} names a field that is not declared",
                    where=name,
                    found=path,
                    expected="one of " + ", ".join(fields) if fields else "a state with a struct",
                    hint="write the path of a declared field, as in address.street",
                )
    for path, value in field_defaults.items():
        check_value(value, fields[path].type, f"{name}, default of {path}")
    claims: dict[str, str] = {}
    for path, former in fields_were.items():
        parent = path[: -len(join_path("", fields[path].name))]
        for old_name in names_of(former):
            claimed = parent + join_path("", old_name)
            if claimed in fields:
                raise Invalid(
                    "a former name of a field is in use again, so stored values could be either",
                    where=f"{name}, {path}",
                    found=f'fields_were "{path}": "{old_name}", and a field {claimed}',
                    hint="give the new field a name that the struct never had",
                )
            if claimed in claims:
                raise Invalid(
                    "two fields have the same former name",
                    where=name,
                    found=f"{claims[claimed]} and {path} were both {old_name}",
                    hint="leave the former name out of the one that is new",
                )
            claims[claimed] = path


def names_of(former: str | Sequence[str]) -> tuple[str, ...]:
    """Give the former names of one field, newest first."""
    return (former,) if isinstance(former, str) else tuple(former)
