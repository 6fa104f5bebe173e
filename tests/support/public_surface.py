"""All that people depend on by name: Python, the command line, REST, metrics, errors, settings.

`python tests/support/public_surface.py` writes it to `tests/unit/public_surface.json`, which a test compares.
What a change takes away there is taken away from somebody's job, script or dashboard.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

WRITTEN = Path(__file__).parents[1] / "unit" / "public_surface.json"
METHODS = ("get", "post", "put", "patch", "delete")


def surface() -> dict[str, Any]:
    """All public names by where they are used."""
    return {
        "python": python(),
        "command line": command_line(),
        "rest": rest(),
        "metrics": metrics(),
        "alerts": alerts(),
        "errors": errors(),
        "settings": settings(),
    }


def python() -> dict[str, Any]:
    """`holdfast.*`: functions with their parameters, classes with their public attributes."""
    import holdfast
    import holdfast.testing

    public: dict[str, Any] = {}
    for name in holdfast.__all__:
        value = getattr(holdfast, name)
        if isinstance(value, ModuleType):
            public |= {f"{name}.{inner}": described(getattr(value, inner)) for inner in names_of(value)}
        else:
            public[name] = described(value)
    testing = holdfast.testing
    return public | {f"testing.{name}": described(getattr(testing, name)) for name in names_of(testing)}


def names_of(module: ModuleType) -> list[str]:
    """What a module offers."""
    names = getattr(module, "__all__", None)
    return sorted(names if names is not None else (name for name in vars(module) if not name.startswith("_")))


def described(value: Any) -> Any:
    """A function's parameters, a class's attributes, or the type of anything else."""
    if inspect.isclass(value):
        fields = (
            {field.name for field in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
        )
        attributes = {name for name in dir(value) if not name.startswith("_")}
        return sorted((fields | attributes) - set(dir(Exception)))
    if inspect.isfunction(value):
        return list(inspect.signature(value).parameters)
    return type(value).__name__


def command_line() -> dict[str, list[str]]:
    """Each command with its arguments and options."""
    import typer.main

    from holdfast.cli import app

    commands: dict[str, list[str]] = {}

    def enter(command: Any, words: tuple[str, ...]) -> None:
        inner = getattr(command, "commands", {})
        for name in inner:
            enter(inner[name], (*words, name))
        if not inner:
            commands[" ".join(words)] = sorted(
                option
                for parameter in command.params
                for option in (
                    (*parameter.opts, *parameter.secondary_opts)
                    if parameter.param_type_name == "option"
                    else (str(parameter.metavar or parameter.name).upper(),)
                )
            )

    enter(typer.main.get_command(app), ("holdfast",))
    return commands


def rest() -> dict[str, Any]:
    """Paths with their methods, and the fields of what our own resources answer."""
    from holdfast.server.app import app

    with tempfile.TemporaryDirectory() as home:
        served = app(Path(home))
        described_api = served.openapi()
    paths: dict[str, set[str]] = {}
    for route in served.routes:
        path = getattr(route, "path", None)
        if path is not None:
            paths.setdefault(path, set()).update(getattr(route, "methods", None) or ())
    for path, operations in described_api["paths"].items():
        paths.setdefault(path, set()).update(method.upper() for method in operations if method in METHODS)
    schemas = described_api["components"]["schemas"]
    return {
        "paths": {path: sorted(methods - {"HEAD"}) for path, methods in sorted(paths.items())},
        "fields": {name: sorted(schema.get("properties", {})) for name, schema in sorted(schemas.items())},
    }


def metrics() -> dict[str, list[str]]:
    """Each metric with its labels."""
    from holdfast.observe.metrics import METRICS

    return {metric.name: list(metric.labels) for metric in METRICS}


def alerts() -> dict[str, str]:
    """Each alert by the name that rules and people use, and Prometheus's."""
    from holdfast.observe.rules import RULES

    return {rule.name: rule.alert for rule in RULES}


def errors() -> dict[str, list[int]]:
    """Each kind of error with its exit code and its HTTP status."""
    from holdfast.errors import BY_KIND

    return {kind: [error.exit_code, error.http_status] for kind, error in sorted(BY_KIND.items())}


def settings() -> dict[str, Any]:
    """What `--set`, files and the environment know by name, and the defaults that are not Spark's."""
    from holdfast.config.defaults import DEFAULTS
    from holdfast.config.flink_keys import FLINK_KEYS

    return {
        "defaults": sorted(default.key for default in DEFAULTS),
        "flink": sorted(key.name for key in FLINK_KEYS),
    }


def render(names: dict[str, Any]) -> str:
    """As it is written, a name a line so that a difference is a line."""
    return json.dumps(names, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    WRITTEN.write_text(render(surface()), encoding="utf-8")
