"""What a user's own file of options for MySQL says of a login."""

from __future__ import annotations

import configparser
import os
from typing import Any, Final

from holdfast.errors import Invalid

_LOGIN: Final = ("user", "password")
# What an option `ssl-…` names.
_CERTIFICATES: Final = ("ca", "capath", "cert", "key", "password", "cipher")


def client_options() -> dict[str, Any]:
    """Who logs in, and with which certificates, as the driver takes it; of `~/.my.cnf`, group `[client]`.

    Not where: a `socket` would lead to another server than the one that a ledger's address names.

    Raises:
        Invalid: The file cannot be read.
    """
    file = os.path.expanduser("~/.my.cnf")  # noqa: PTH111  that of Path fails for a user without a home
    parser = _Options(allow_no_value=True, strict=False)
    try:
        parser.read(file, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError, OSError):
        raise Invalid(
            "the user's file of options for MySQL cannot be read",
            where=file,
            expected="[client], and lines such as password=…",
            hint="mend the file; `mysql --print-defaults` shows what it says",
        ) from None  # the error repeats a line, password and all
    found: dict[str, Any] = {name: parser.option(name) for name in _LOGIN}
    found["ssl"] = {name: value for name in _CERTIFICATES if (value := parser.option(f"ssl-{name}"))}
    return {name: value for name, value in found.items() if value}


class _Options(configparser.RawConfigParser):
    """MySQL takes `_` for `-` in a name, and quotes around a value."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr.lower().replace("_", "-")

    def option(self, name: str) -> str | None:
        value = self.get("client", name, fallback=None)
        quoted = value and len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
        return value[1:-1] if value and quoted else value
