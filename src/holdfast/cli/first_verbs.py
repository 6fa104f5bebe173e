"""What `holdfast` alone shows: the verbs to begin with, each in a line that can be typed."""

from __future__ import annotations

from typing import Final

FIRST: Final = (
    ("holdfast tour", "a walk through the verbs"),
    ("holdfast checkpoint verify checkpoints/visits", "is a checkpoint whole?"),
    ("holdfast state get checkpoints/visits ann", "what does it know of a key?"),
    ("holdfast savepoint take checkpoints/visits", "keep a copy; its query may run"),
    ("holdfast init", "write a small job, to be run"),
)


def first_verbs() -> str:
    """The text, at most 80 columns wide."""
    width = max(len(command) for command, _ in FIRST)
    lines = [f"  {command.ljust(width)}  {why}" for command, why in FIRST]
    return "\n".join(
        [
            "State management for streaming on Spark.",
            "",
            "To begin with:",
            *lines,
            "",
            "All verbs: holdfast --help. One of them: holdfast state get --help.",
            "A TAB completes what you type: see holdfast completion --help.",
        ]
    )
