"""Settings of Spark that a file makes, wherever it makes them."""

from __future__ import annotations

import ast
from typing import Any, Final

from holdfast.advice.source.column_calls import Arguments
from holdfast.advice.source.values import UNKNOWN, Builder, Const, Pairs, Session, Settings, Unknown

_PREFIX: Final = "spark."
_MAKING: Final = frozenset(("set", "config", "setIfMissing"))


def note_setting(settings: Settings, name: str, given: Arguments, node: ast.Call) -> None:
    """Note the setting that a call makes, be it of `spark.conf`, a builder or a `SparkConf`."""
    if name not in _MAKING:
        return
    key = given.get(0, "key")
    if isinstance(key, Const) and isinstance(key.value, str) and key.value.startswith(_PREFIX):
        settings.made[key.value] = (given.get(1, "value"), node)
        if key.value == "spark.master":
            settings.master = given.text(1, "value")
    elif isinstance(key, Unknown) and len(given.positional) == 2:
        settings.known = False


def note_dict(settings: Settings, node: ast.Dict) -> None:
    """Note settings in a dict: whoever writes them down means to make them."""
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value.startswith(_PREFIX):
            made = Const(value.value) if isinstance(value, ast.Constant) else UNKNOWN
            settings.made[key.value] = (made, key)


def of_builder(settings: Settings, builder: Builder, name: str, given: Arguments, node: ast.Call) -> Any:
    """What a method of a session's builder gives."""
    if name == "master":
        settings.master = given.text(0, "master") or settings.master
    elif name == "config" and not (given.positional and isinstance(given.positional[0], Const)):
        settings.known = settings.known and isinstance(given.named.get("map"), Pairs)
    elif name in ("getOrCreate", "create"):
        settings.built = settings.built or node
        return Session()
    return builder
