"""A label that a savepoint was given after it was taken: one small file for each time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.formats.text import compact, damaged, decoded, json_object, string, whole_number
from holdfast.json_shapes import JsonShape

_WHAT: Final = "the label of a savepoint"


@dataclass(frozen=True, slots=True)
class LabelChange(JsonShape):
    """One change of a label.

    Attributes:
        savepoint: The id of the savepoint.
        label: The label from then on; None if it has none any more.
        before: The label until then.
        who: Who changed it.
        when_ms: When, in epoch milliseconds.
    """

    savepoint: str
    label: str | None
    before: str | None
    who: str
    when_ms: int

    def render(self) -> bytes:
        """The file."""
        return f"{compact(self.as_dict())}\n".encode()


def parse_label_change(data: bytes, where: str) -> LabelChange:
    """Read the file.

    Raises:
        Corrupt: It is not what was written.
    """
    fields = json_object(decoded(data, _WHAT, where), _WHAT, where)
    labels: dict[str, str | None] = {}
    for key in ("label", "before"):
        value = fields.get(key)
        if value is not None and not isinstance(value, str):
            raise damaged(_WHAT, where, f"`{key}` is {value!r}", "text, or nothing")
        labels[key] = value
    return LabelChange(
        savepoint=string(fields, "savepoint", _WHAT, where),
        label=labels["label"],
        before=labels["before"],
        who=string(fields, "who", _WHAT, where),
        when_ms=whole_number(fields, "when_ms", _WHAT, where),
    )
