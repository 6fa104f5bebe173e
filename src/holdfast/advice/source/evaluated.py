"""What was seen in a file of code, for the checks to look at."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from holdfast.advice.source.column_calls import Arguments
from holdfast.advice.source.values import Frame, Reader, Settings, Stateful, Watermark, Writer


@dataclass(slots=True)
class Evaluated:
    """What was seen in a file.

    Attributes:
        tree: Its syntax tree.
        imports: The full names that its names stand for.
        settings: The settings that it makes.
        frames: Every frame that was made, in order.
        writers: Every writer.
        marks: Every watermark that was declared, each with the frame that it was declared on.
        options: The options of readers of streams: reader, key, value and call.
        dropped: Frames that a statement made and nobody kept.
        own_calls: Calls of Holdfast's functions, by name.
        functions: The functions and methods of the file, by name; of several with one name the last.
        complete: Whether all of it was followed.
    """

    tree: ast.Module
    imports: dict[str, str] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    frames: list[Frame] = field(default_factory=list)
    writers: list[Writer] = field(default_factory=list)
    marks: list[tuple[Watermark, Frame]] = field(default_factory=list)
    options: list[tuple[Reader, str, Any, ast.Call]] = field(default_factory=list)
    dropped: list[tuple[Frame, ast.Call]] = field(default_factory=list)
    own_calls: list[tuple[str, Arguments, ast.Call]] = field(default_factory=list)
    functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = field(default_factory=dict)
    complete: bool = True

    def operators(self) -> list[Stateful]:
        """The stateful operators of streams, each call with every history that it has."""
        streams = [frame for frame in self.frames if frame.streaming]
        streams += [writer.frame for writer in self.writers]
        seen: dict[Any, Stateful] = {}
        for frame in streams:
            for operator in frame.operators:
                seen.setdefault(
                    (id(operator.node), operator.watermarks, operator.other, operator.known), operator
                )
        return list(seen.values())
