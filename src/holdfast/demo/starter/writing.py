"""The writer of the starter job's files: all of them, or none."""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Final

from holdfast.engine.session.java import find_java
from holdfast.errors import Conflict, HoldfastError, Invalid, NotFound
from holdfast.extras import install_for_jobs
from holdfast.json_shapes import JsonShape
from holdfast.storage.local import LocalStorage

_TEMPLATES: Final = Path(__file__).parent
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class Starter(JsonShape):
    """A starter job.

    Attributes:
        name: The name of the job, its file and its function.
        folder: The absolute path of the directory.
        files: The paths of the files, relative to the directory.
        install: The command that installs the missing packages of the job and its test; null if none is
            missing.
    """

    name: str
    folder: str
    files: tuple[str, ...]
    install: str | None


def plan_starter(folder: Path, name: str) -> Starter:
    """Return the files to write, without writing them.

    Raises:
        Invalid: The name is not usable for a Python module, or the directory is a file.
        Conflict: One of the files exists.
    """
    _check_name(name)
    place = Path(os.path.realpath(folder))
    if place.exists() and not place.is_dir():
        raise Invalid(
            "the path for the new files is not a directory",
            code="HF-E2178",
            where=str(place),
            hint="name a new or existing directory",
        )
    files = tuple(_contents(name))
    there = [file for file in files if (place / file).exists()]
    if there:
        raise Conflict(
            "refusing to overwrite existing files",
            code="HF-E4011",
            where=str(place),
            found=", ".join(there),
            hint="name a different directory: `holdfast init DIR`",
        )
    return Starter(name, str(place), files, install_for_jobs("pytest", java=_lacks_java()))


def write_starter(starter: Starter) -> None:
    """Write the files; if one cannot be written, delete those already written.

    Raises:
        Conflict: One of the files was created in the meantime.
        Unavailable: The directory cannot be written.
    """
    place = Path(starter.folder)
    folders = {parent for file in starter.files for parent in (place / file).parents}
    made = sorted((parent for parent in folders if not parent.exists()), reverse=True)
    storage = LocalStorage(place)
    written: list[str] = []
    try:
        for file, text in _contents(starter.name).items():
            storage.write(file, text.encode())
            written.append(file)
    except BaseException:
        for file in written:
            (place / file).unlink(missing_ok=True)
        for parent in made:  # deepest first
            if parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()
        raise


def _lacks_java() -> bool:
    try:
        find_java(os.environ)
    except NotFound:
        return True
    except HoldfastError:  # the configured Java is unusable, which no installation fixes; a run reports it
        return False
    return False


def _contents(name: str) -> Mapping[str, str]:
    """Return the text of each file, by path."""
    templates = {
        f"{name}.py": "job",
        f"test_{name}.py": "test_job",
        "holdfast.toml": "holdfast",
        "orders/1.json": "orders-1",
        "orders/2.json": "orders-2",
    }
    return {
        file: Template((_TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")).substitute(name=name)
        for file, template in templates.items()
    }


def _check_name(name: str) -> None:
    usable = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_0123456789")[:64] or "shop"
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise Invalid(
            "the job name cannot be the name of a Python file",
            code="HF-E2179",
            where="--name",
            found=repr(name),
            expected="a name that is not a keyword of Python"
            if keyword.iskeyword(name)
            else "at most 64 lower-case letters, digits and underscores, starting with a letter",
            hint=f"give a different name: --name {f'my_{usable}' if keyword.iskeyword(usable) else usable}",
        )
    if name == "hf" or importlib.util.find_spec(name) is not None:
        raise Invalid(
            "the job file would hide an existing Python module of the same name",
            code="HF-E2180",
            where=f"--name {name}",
            hint=f"use a different name, for example --name my_{name}",
        )
