"""Types of rows as Spark writes them in the schemas of state."""

from __future__ import annotations

import json


def fields(*columns: str) -> str:
    """`name type`, with a `!` behind what cannot be null."""
    parts = [column.rstrip("!").split(" ") for column in columns]
    return json.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": kind, "nullable": not column.endswith("!"), "metadata": {}}
                for (name, kind), column in zip(parts, columns, strict=True)
            ],
        }
    )
