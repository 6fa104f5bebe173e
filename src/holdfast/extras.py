"""Detection of missing extras, and stand-ins for the public names that need them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, NoReturn

from holdfast.errors import Unsupported

# Packages of extras that are imported where they are used, without their own error message.
_EXTRA_OF = {
    "duckdb": "sql",
    "fastapi": "server",
    "h11": "server",
    "jinja2": "server",
    "pandas": "spark",
    "prometheus_client": "server",
    "py4j": "spark",
    "pyarrow": "sql",
    "pydantic": "server",
    "pyspark": "spark",
    "starlette": "server",
    "uvicorn": "server",
}

# The locks and limits of processes that Holdfast uses do not exist there.
NOT_ON_WINDOWS = (
    "Holdfast does not run on Windows\n  found win32, expected linux\n"
    "hint: install it in the Windows Subsystem for Linux (WSL), and keep checkpoints on its own disk,"
    " not below /mnt"
)

# The packages that every job needs.
_JOB_PACKAGES = ("pyspark", "pandas", "pyarrow")


class MissingPackage(Unsupported, ImportError):
    """The error for a missing package of an extra; callers may catch it as an `ImportError`."""


class StandIn:
    """A public name whose extra is not installed.

    A stand-in can be imported, listed and shown, so that `from holdfast import *`, `help(holdfast)` and
    completion work. Any other use raises `MissingPackage`, which names the extra.

    Args:
        name: The public name.
        package: The missing package.
        extra: The extra that provides it.
    """

    def __init__(self, name: str, package: str, extra: str) -> None:
        self._error = (package, extra, name)
        self._text = f"{name}: needs {package}, pip install 'holdfast[{extra}]'"
        self.__doc__ = self._text

    def __repr__(self) -> str:
        return f"<{self._text}>"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):  # attributes that tools look up on any object
            raise AttributeError(name)
        self._refuse()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise _missing(*self._error)

    __call__ = __getitem__ = __or__ = __ror__ = _refuse
    __instancecheck__ = __subclasscheck__ = __mro_entries__ = _refuse


def stand_in(name: str, error: ModuleNotFoundError, *, for_jobs: bool) -> StandIn | None:
    """Return the stand-in for a public name whose import failed because an extra is missing.

    Args:
        name: The public name.
        error: The error of its import.
        for_jobs: Whether only jobs use the name.

    Returns:
        None if the package belongs to no extra.
    """
    package = _package_of(error)
    return None if package is None else StandIn(name, package, _extra_of(package, for_jobs=for_jobs))


def missing_package(
    error: BaseException, *, where: str | None = None, for_jobs: bool = False
) -> MissingPackage | None:
    """Return the error that names the extra to install after a failed import.

    Args:
        error: The error that the import raised.
        where: The feature that needs the package.
        for_jobs: Whether only jobs use the package.

    Returns:
        None if the error is not a missing package of an extra.
    """
    package = _package_of(error)
    return None if package is None else _missing(package, _extra_of(package, for_jobs=for_jobs), where)


def require_package(package: str) -> None:
    """Check that a package is installed, without importing it.

    Raises:
        MissingPackage: The package is not installed.
    """
    if find_spec(package) is None:
        raise _missing(package, _EXTRA_OF.get(package))


def install_for_jobs(*others: str, java: bool) -> str | None:
    """Return the command that installs the packages a job lacks; None if all are installed.

    Args:
        others: Further packages that belong to no extra.
        java: Whether a Java runtime is missing too.
    """
    extras = [
        *(["java"] if java else []),
        *(["spark"] if any(find_spec(package) is None for package in _JOB_PACKAGES) else []),
    ]
    named = [f"'holdfast[{','.join(extras)}]'"] if extras else []
    packages = [*named, *(package for package in others if find_spec(package) is None)]
    return f"pip install {' '.join(packages)}" if packages else None


def _package_of(error: BaseException) -> str | None:
    """Return the missing package that caused an import error, or None if it belongs to no extra."""
    package = (error.name or "").split(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    return package if package in _EXTRA_OF else None


def _extra_of(package: str, *, for_jobs: bool) -> str:
    return "spark" if for_jobs else _EXTRA_OF[package]


def _missing(package: str, extra: str | None, where: str | None = None) -> MissingPackage:
    return MissingPackage(
        f"the package {package} is not installed",
        code="HF-E7062",
        where=where,
        hint=f"run `pip install {package}`" if extra is None else f"run `pip install 'holdfast[{extra}]'`",
    )
