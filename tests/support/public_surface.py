"""All that people depend on by name: Python, the command line, REST, metrics, errors, settings.

`python tests/support/public_surface.py` writes it to `tests/unit/public_surface.json`, which a test compares.
What a change takes away there is taken away from somebody's job, script or dashboard.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import verbs_json
import written_state

from holdfast.json_shapes import json_fields

WRITTEN = Path(__file__).parents[1] / "unit" / "public_surface.json"
SOURCE = Path(__file__).parents[2] / "src" / "holdfast"
# What a file with shapes has somewhere: no other is parsed.
HAS_SHAPES = re.compile("JsonShape|emit_json|def (?:as_dict|as_json|render)")
METHODS = ("get", "post", "put", "patch", "delete")


def surface() -> dict[str, Any]:
    """All public names by where they are used."""
    return names_in_code() | names_in_what_is_made()


def names_in_code() -> dict[str, Any]:
    """The names that are read from the code alone."""
    return {
        "python": python(),
        "command line": command_line(),
        "rest": rest(),
        "metrics": metrics(),
        "alerts": alerts(),
        "errors": errors(),
        "settings": settings(),
        "json shapes": json_shapes(),
        "environment": environment(),
        "spark settings": spark_settings(),
    }


def names_in_what_is_made() -> dict[str, Any]:
    """The names in what real runs print and write."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "made"
        folder.mkdir()
        written_state.write(folder)
        return {"files": files(folder), "json of verbs": verbs_json.fields_by_verb(folder)}


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
        names = sorted((fields | attributes) - set(dir(Exception)))
        return {"attributes": names, "methods": methods_of(value)}
    if inspect.isfunction(value):
        return signature(value)
    return type(value).__name__


SIGNS: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
    inspect.Parameter.KEYWORD_ONLY: "named ",
    inspect.Parameter.POSITIONAL_ONLY: "placed ",
}


def signature(function: Any) -> list[str]:
    """Each parameter with how it is given and its default."""
    return [
        f"{SIGNS.get(parameter.kind, '')}{parameter.name}{default(parameter.default)}"
        for parameter in inspect.signature(function).parameters.values()
    ]


def default(value: Any) -> str:
    """A default in words that are the same in every process."""
    if value is inspect.Parameter.empty:
        return ""
    if dataclasses.is_dataclass(value) or callable(value) or type(value) is object:
        return f" = {getattr(value, '__name__', type(value).__name__)}"
    return f" = {value!r}"


def methods_of(value: type) -> dict[str, list[str]]:
    """The public methods that a class has from us, with their parameters, and how it is made."""
    found: dict[str, list[str]] = {}
    for base in reversed(value.__mro__):
        if base.__module__.partition(".")[0] != "holdfast":
            continue
        for name, member in vars(base).items():
            function = getattr(member, "__func__", member)
            if inspect.isfunction(function) and (name == "__init__" or not name.startswith("_")):
                found[name] = signature(function)
    return found


def command_line() -> dict[str, list[str]]:
    """Each command with its arguments and options: all forms, whether with a value, and how often."""
    import typer.main

    from holdfast.cli import app

    commands: dict[str, list[str]] = {}

    def enter(command: Any, words: tuple[str, ...]) -> None:
        inner = getattr(command, "commands", {})
        for name in inner:
            enter(inner[name], (*words, name))
        if not inner:
            commands[" ".join(words)] = sorted(map(parameter_text, command.params))

    enter(typer.main.get_command(app), ("holdfast",))
    return commands


def parameter_text(parameter: Any) -> str:
    """`--set VALUE, repeated`, `-w / --watch`, `CHECKPOINT, optional`."""
    several = ", repeated" if getattr(parameter, "multiple", False) or parameter.nargs != 1 else ""
    if parameter.param_type_name != "option":
        name = str(parameter.metavar or parameter.name).upper()
        return f"{name}{several}{'' if parameter.required else ', optional'}"
    forms = " / ".join((*sorted(parameter.opts, key=len), *parameter.secondary_opts))
    value = "" if parameter.is_flag else f" {parameter.type.name}"
    return f"{forms}{value}{several}{', required' if parameter.required else ''}"


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
    parameters = {
        f"{method.upper()} {path}": [
            f"{each['in']} {each['name']}{', required' if each.get('required') else ''}"
            for each in operation.get("parameters", ())
        ]
        for path, operations in sorted(described_api["paths"].items())
        for method, operation in operations.items()
        if method in METHODS
    }
    return {
        "parameters": {operation: sorted(named) for operation, named in parameters.items() if named},
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
    from holdfast.config.flink_keys import FLINK_KEYS
    from holdfast.config.spark_defaults import DEFAULTS

    return {
        "defaults": sorted(default.key for default in DEFAULTS),
        "flink": sorted(key.name for key in FLINK_KEYS),
    }


def json_shapes() -> list[str]:
    """The fields of every object that goes out as JSON, without the name of its class, which may change.

    A class with a declared shape tells it. The others are read from the code: the literal names in what
    `as_dict` and `render` return and in what verbs print, and the fields of a dataclass that is taken whole.
    What runs without Spark is in "json of verbs" by its verb.
    """
    return sorted(shape for file in sorted(SOURCE.rglob("*.py")) for shape in shapes_in(file))


def shapes_in(file: Path) -> Iterator[str]:
    """The shapes in one file."""
    text = file.read_text(encoding="utf-8")
    for owner in ast.walk(ast.parse(text if HAS_SHAPES.search(text) else "")):
        if isinstance(owner, ast.ClassDef):
            if any(isinstance(base, ast.Name) and base.id == "JsonShape" for base in owner.bases):
                yield " ".join(sorted(field.name for field in json_fields(class_in(file, owner.name))))
            for method in owner.body:
                if isinstance(method, ast.FunctionDef) and method.name in ("as_dict", "as_json", "render"):
                    names = set(literal_names(method))
                    if any(isinstance(node, ast.Name) and node.id == "asdict" for node in ast.walk(method)):
                        names |= {f"{name} (field)" for name in annotated(owner)}
                    if names:
                        yield " ".join(sorted(names))
        if isinstance(owner, ast.Call) and ast.unparse(owner.func) in ("emit_json", "output.emit_json"):
            names = set(literal_names(owner))
            if names:
                yield " ".join(sorted(names))


def class_in(file: Path, name: str) -> Any:
    """A class by its file."""
    module = ".".join(file.relative_to(SOURCE.parent).with_suffix("").parts)
    return getattr(importlib.import_module(module), name)


def literal_names(node: ast.AST) -> Iterator[str]:
    """The names of fields that are written out in dictionaries."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Dict):
            for key in inner.keys:
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value


def annotated(owner: ast.ClassDef) -> Iterator[str]:
    """The fields of a dataclass."""
    for node in owner.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def files(made: Path) -> dict[str, list[str]]:
    """Every file that Holdfast writes, by what it is called, and the fields, tables and columns in it.

    Args:
        made: Where `written_state.write` has made one of everything.
    """
    with tempfile.TemporaryDirectory() as temporary:
        found = written_state.files_by_pattern(made)
        for archive in sorted(written_state.PACKED.glob("*.tar.xz")):
            name = archive.name.removesuffix(".tar.xz")
            if name != "state":
                place = written_state.unpacked(name, Path(temporary))
                notes = written_state.files_by_pattern(place)
                found |= {f"checkpoint of {name}/{path}": fields for path, fields in notes.items()}
    return found


def environment() -> list[str]:
    """The variables of the environment by which people steer it."""
    return named_in_source(r"HOLDFAST_[A-Z_]+")


def spark_settings() -> list[str]:
    """The settings of Spark that are Holdfast's own."""
    return named_in_source(r"spark\.holdfast\.[A-Za-z.]+[A-Za-z]")


def named_in_source(pattern: str) -> list[str]:
    """What fits a pattern anywhere in the code."""
    texts = (file.read_text(encoding="utf-8") for file in SOURCE.rglob("*.py"))
    return sorted({name for text in texts for name in re.findall(pattern, text)})


def render(names: dict[str, Any]) -> str:
    """As it is written, a name a line so that a difference is a line."""
    return json.dumps(names, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    WRITTEN.write_text(render(surface()), encoding="utf-8")
