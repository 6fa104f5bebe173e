"""What a document tells its reader to do: files to save, scripts to paste, commands with what they print.

What a block alone does not say, a comment before it says, which only a test sees. `<!-- file NAME -->` names
the file that the block is saved as. `<!-- first terminal -->` stands before a command that goes on, in a
terminal of its own, and `<!-- Ctrl-C in the first terminal -->` where the reader ends it. A console block
without a command is what appears in the first terminal. A line with `…` stands for lines that are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# What is saved as a file is run by the commands that follow, each in a process of its own.
FILE = re.compile(r"^<!-- file (?P<name>\S+) -->\n```python\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_SCRIPT = re.compile(r"^```bash\n(?P<script>.*?)^```$", re.MULTILINE | re.DOTALL)
_CONSOLE = re.compile(
    r"(?P<first>^<!-- first terminal -->\n)?^```console\n(?P<console>.*?)^```$", re.MULTILINE | re.DOTALL
)
_INTERRUPT = re.compile(r"^<!-- (?P<interrupt>Ctrl-C in the first terminal) -->$", re.MULTILINE)
_STEP = re.compile(
    "|".join(pattern.pattern for pattern in (FILE, _SCRIPT, _CONSOLE, _INTERRUPT)), re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Save:
    """Save a file."""

    name: str
    text: str


@dataclass(frozen=True)
class Paste:
    """Paste a script that prints nothing."""

    script: str


@dataclass(frozen=True)
class Command:
    """Run a command to its end; it prints what is shown."""

    command: str
    shown: str


@dataclass(frozen=True)
class Start:
    """Start a command in the first terminal, where it goes on; it prints what is shown."""

    command: str
    shown: str


@dataclass(frozen=True)
class Appears:
    """Something more is printed in the first terminal."""

    shown: str


@dataclass(frozen=True)
class Interrupt:
    """End what runs in the first terminal."""


Step = Save | Paste | Command | Start | Appears | Interrupt


def steps(text: str) -> Iterator[Step]:
    """What a reader does, from top to bottom."""
    for match in _STEP.finditer(text):
        if match["name"]:
            before = text[: match.start()].rstrip().rpartition("\n\n")[2]
            assert f"`{match['name']}`" in before, f"the text before it does not name {match['name']}"
            yield Save(match["name"], match["text"])
        elif match["script"]:
            yield Paste(match["script"])
        elif match["interrupt"]:
            yield Interrupt()
        else:
            yield from _commands(match["console"], in_first=bool(match["first"]))


def _commands(console: str, *, in_first: bool) -> Iterator[Step]:
    before, *commands = re.split(r"^\$ ", console, flags=re.MULTILINE)
    if before:
        yield Appears(before)
    for command in commands:
        line, _, shown = command.partition("\n")
        yield Start(line, shown) if in_first else Command(line, shown)
