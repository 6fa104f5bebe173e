"""What the installed Spark knows, without starting it."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from holdfast.engine.session.user_conf import jars_of_spark
from holdfast.engine.versions import installed

# Spark defines all settings of its SQL in one class; its bytes have their names.
_JAR: Final = "spark-catalyst_*.jar"
_CLASS: Final = "org/apache/spark/sql/internal/SQLConf$.class"


@dataclass(frozen=True, slots=True)
class InstalledSpark:
    """The Spark that would run here.

    Attributes:
        version: Its version; None where pyspark is not installed.
        definitions: The bytes that name the settings which it knows; empty where they are not found.
    """

    version: str | None
    definitions: bytes = b""

    @classmethod
    def here(cls, environ: Mapping[str, str]) -> InstalledSpark:
        """Look at what is installed. Reads one class of one jar."""
        definitions = b""
        jars = jars_of_spark(environ, _JAR)
        with suppress(OSError, KeyError, IndexError, zipfile.BadZipFile), zipfile.ZipFile(jars[0]) as jar:
            definitions = jar.read(_CLASS)
        return cls(installed("pyspark"), definitions)

    def unknown(self, settings: Iterable[str]) -> tuple[str, ...]:
        """Those of these settings of Spark's SQL that it has no definition of, sorted."""
        if not self.definitions:
            return ()
        own = (name for name in settings if name.startswith("spark.sql."))
        return tuple(sorted(name for name in own if name.encode() not in self.definitions))
