"""Which extra of the package brings what is not there."""

from __future__ import annotations

from importlib.util import find_spec

from holdfast.errors import Unsupported

# What is imported where it is used, without a word of its own for who lacks it.
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


def missing_package(error: BaseException, *, for_jobs: bool = False) -> Unsupported | None:
    """What to install for an import that failed, if that is it.

    Args:
        error: Any error.
        for_jobs: Whether it was on the way to something that only jobs use.

    Returns:
        None for any other error.
    """
    package = (error.name or "").split(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package not in _EXTRA_OF:
        return None
    return _missing(package, "spark" if for_jobs else _EXTRA_OF[package])


def require_package(package: str) -> None:
    """Refuse what would need a package that is not there, before anything begins; nothing is imported.

    Raises:
        Unsupported: It is not installed.
    """
    if find_spec(package) is None:
        raise _missing(package, _EXTRA_OF[package])


def _missing(package: str, extra: str) -> Unsupported:
    return Unsupported(
        "a package that this needs is not installed",
        found=f"no {package}",
        hint=f"pip install 'holdfast[{extra}]'",
    )
