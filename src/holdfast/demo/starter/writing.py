"""Write the files of a job to begin with, all of them or none."""

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
    """A job to begin with.

    Attributes:
        name: The job, its file and its function.
        folder: The directory, in full.
        files: The files, relative to the directory.
        install: The command that installs what the job and its test need and is missing here; null where
            nothing is.
    """

    name: str
    folder: str
    files: tuple[str, ...]
    install: str | None


def plan_starter(folder: Path, name: str) -> Starter:
    """Say which files would be written; writes nothing.

    Raises:
        Invalid: The name cannot be that of a module of one's own, or the directory is a file.
        Conflict: One of the files is there.
    """
    _check_name(name)
    place = Path(os.path.realpath(folder))
    if place.exists() and not place.is_dir():
        raise Invalid(
            "this is no directory", code="HF-E2178", where=str(place), hint="name a directory, new or not"
        )
    files = tuple(_contents(name))
    there = [file for file in files if (place / file).exists()]
    if there:
        raise Conflict(
            "a job is not written over files that are there",
            code="HF-E4011",
            where=str(place),
            found=", ".join(there),
            hint="name another directory: `holdfast init DIR`",
        )
    return Starter(name, str(place), files, install_for_jobs("pytest", java=_lacks_java()))


def write_starter(starter: Starter) -> None:
    """Write them; what is written is removed again where one of them cannot be.

    Raises:
        Conflict: One of the files has come to be meanwhile.
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
        for parent in made:  # the deepest first
            if parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()
        raise


def _lacks_java() -> bool:
    try:
        find_java(os.environ)
    except NotFound:
        return True
    except (
        HoldfastError
    ):  # one that is named, and that a second one would not replace; a run says what is wrong
        return False
    return False


def _contents(name: str) -> Mapping[str, str]:
    """The text of each file, by its path."""
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
            "the name cannot be that of a Python module",
            code="HF-E2179",
            where=f"--name {name}",
            expected="small letters, digits and underscores, a letter first",
            hint=f"such as --name {f'my_{usable}' if keyword.iskeyword(usable) else usable}",
        )
    if name == "hf" or importlib.util.find_spec(name) is not None:
        raise Invalid(
            "a module of this name exists, and the job's file would hide it",
            code="HF-E2180",
            where=f"--name {name}",
            hint=f"take another, such as --name my_{name}",
        )
