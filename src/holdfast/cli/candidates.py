"""Completions of arguments: jobs, savepoints, labels, batches, states and choices.

Completions are read from files on this machine, in bounded time. Nothing is written, remote storage is not
read, and a file that cannot be read yields no completions.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import holdfast as hf
from holdfast.cli import options, output
from holdfast.cli.short_verbs import PANELS
from holdfast.config.checks import canonical_uri, local_path, parse_storage
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.at_rest.model import NamedOperator
    from holdfast.jobs.registry.registry import Registry
    from holdfast.storage.local import LocalStorage


# Maximum number of newest savepoints and batches.
_MOST: Final = 100
# After this time no more manifests are read for their labels.
_LABELS_S: Final = 0.2
# Maximum wait for a registry that another process is writing.
_PATIENCE_S: Final = 0.1
# An alternative in a `metavar` that is typed literally, such as `batch` or `1`.
_CHOICE: Final = re.compile(r"[a-z0-9][a-z0-9-]*")
_BATCH_OF_ID: Final = re.compile(r"-b([0-9]+)-")


@dataclass(frozen=True, slots=True)
class Completion:
    """A completion of a word, with the attributes that Click reads.

    Attributes:
        value: The completed word.
        help: The description, for shells that show one.
        type: `plain`; or `dir` or `file` to make the shell list directories or files.
    """

    value: str
    help: str = ""
    type: str = "plain"


DIRECTORIES: Final = Completion("", type="dir")
FILES: Final = Completion("", type="file")


@dataclass(frozen=True, slots=True)
class TypedWords:
    """The words typed so far.

    Attributes:
        word: The start of the word, without the shell's quotes.
        given: The arguments and options before this word, by parameter name.
        place: The verb's first argument, or None.
        by_batch: Whether `@BATCH` may follow a checkpoint.
    """

    word: str
    given: Mapping[str, Any]
    place: str | None
    by_batch: bool

    def registry(self) -> Registry:
        """Return the registry of the state home, opened read-only."""
        from holdfast.jobs.registry.registry import Registry

        home = options.state_home(self.given.get("home"))
        return Registry(home.registry, patience_s=_PATIENCE_S, read_only=True)

    def address_of(self, name: str) -> str:
        """Return a path unchanged, or the checkpoint of the job with this name.

        Raises:
            NotFound: The job does not exist.
            LookupError: The job has several checkpoints.
        """
        if not {"/", ":", "@"}.isdisjoint(name) or Path(_expanded(name)).is_dir():
            return name
        registry = self.registry()
        job = registry.job(name)
        found = [query.checkpoint for query in registry.queries(job.name)] or [job.checkpoint]
        if len(found) > 1:
            raise LookupError(name)
        return found[0]


def candidates(context: Any, parameter: Any, word: str) -> list[Completion]:
    """Return the completions of an argument or of an option's value.

    Args:
        context: Click's context of the verb.
        parameter: The argument or option; its `metavar` names the accepted kinds.
        word: The part of the word typed so far.
    """
    arguments = [other for other in context.command.params if other.param_type_name == "argument"]
    place = context.params.get(arguments[0].name) if arguments else None
    wanted = kinds(parameter.metavar)
    asked = TypedWords(
        word,
        context.params,
        place if isinstance(place, str) else None,
        # Parameters that accept `@BATCH`.
        by_batch=wanted[0] in ("A", "B") or ("SP" in wanted and "batch" in context.params),
    )
    found: list[Completion] = []
    for kind in wanted:
        # A type of completion that cannot be read does not affect the others.
        with suppress(HoldfastError, OSError, ArithmeticError, LookupError, TypeError, ValueError):
            found += KINDS[kind](asked) if kind in KINDS else _choice(kind)
    fitting = [one for one in found if one.type != "plain" or one.value.startswith(word)]
    if any(one.type == "plain" and not {"@", "/"}.isdisjoint(one.value) for one in fitting):
        # No directory can follow an @, and the directories inside a catalog are not candidates.
        fitting = [one for one in fitting if one.type == "plain"]
    return list(dict.fromkeys(fitting))


def kinds(metavar: str | None) -> list[str]:
    """Return the kinds of a parameter, from its `metavar`, such as `[CHECKPOINT|JOB]`."""
    text = (metavar or "").removesuffix("...")
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    return [text] if text in KINDS else text.split("|")


def _choice(kind: str) -> Iterator[Completion]:
    if _CHOICE.fullmatch(kind):
        yield Completion(kind)


def _directories(_asked: TypedWords) -> Iterator[Completion]:
    yield DIRECTORIES


def _files(_asked: TypedWords) -> Iterator[Completion]:
    yield FILES


def _jobs(asked: TypedWords) -> Iterator[Completion]:
    if "/" not in asked.word:
        for job in asked.registry().jobs():
            yield Completion(job.name, f"job, {job.state.value}")


def _checkpoints(asked: TypedWords) -> Iterator[Completion]:
    yield DIRECTORIES
    base, at, _ = asked.word.rpartition("@")
    if at and asked.by_batch:
        yield from (replace(one, value=f"{base}@{one.value}") for one in _batches_of(asked.address_of(base)))


def _savepoints(asked: TypedWords) -> Iterator[Completion]:
    yield DIRECTORIES
    base, at, label = asked.word.rpartition("@")
    if at and base and "/" not in label:
        yield from _labels(base)
    else:
        yield from _ids(*asked.word.rpartition("/"))


def _savepoints_by_query(asked: TypedWords) -> Iterator[Completion]:
    query, equals, word = asked.word.partition("=")
    if not equals or "/" in query or "@" in query:
        yield from _savepoints(asked)
        return
    for one in _savepoints(replace(asked, word=word)):
        yield one if one.type != "plain" else replace(one, value=f"{query}={one.value}")


def _spark_releases(_asked: TypedWords) -> Iterator[Completion]:
    from holdfast.checkpoints.naming import RELEASES

    yield from (Completion(release, "Spark") for release in RELEASES)


def _codes(_asked: TypedWords) -> Iterator[Completion]:
    yield from (Completion(code, title) for code, title in hf.known_codes().items())


def _verbs(_asked: TypedWords) -> Iterator[Completion]:
    names = (name.split()[0] for _, panel in PANELS for name in panel)
    yield from (Completion(name) for name in dict.fromkeys(names))


def _places(asked: TypedWords) -> Iterator[Completion]:
    """Yield completions for all locations of state: checkpoints, jobs and savepoints."""
    for made in (_savepoints, _checkpoints, _jobs):
        with suppress(HoldfastError, OSError, ValueError):
            yield from made(asked)


def _labels(base: str) -> Iterator[Completion]:
    from holdfast.savepoints.address import unnameable
    from holdfast.savepoints.catalog import described, ids, is_catalog

    catalog = _local(base)
    if catalog is None or not is_catalog(catalog):
        return
    until = time.monotonic() + _LABELS_S
    batches: dict[str, list[int]] = {}
    for savepoint_id in reversed(ids(catalog)):
        if time.monotonic() > until:
            break
        with suppress(HoldfastError):
            found = described(catalog, savepoint_id)
            if found.manifest is not None and found.manifest.label is not None and found.problem is None:
                batches.setdefault(found.manifest.label, []).append(found.manifest.batch_id)
    for label, of in batches.items():
        if len(of) == 1 and unnameable(label) is None:
            yield Completion(f"{base}@{label}", f"savepoint of batch {of[0]}")


def _ids(folder: str, slash: str, begins: str) -> Iterator[Completion]:
    from holdfast.savepoints.address import catalogs_of
    from holdfast.savepoints.catalog import ids

    if not slash or not folder or (begins and not begins[0].isdigit()):
        return
    for place in catalogs_of(folder):
        catalog = _local(place)
        found = [] if catalog is None else ids(catalog)
        if not found:
            continue
        for whole, short in zip(found[::-1], output.shortened(found, output.SAVEPOINT_ID)[::-1], strict=True):
            shown = short if short.startswith(begins) else whole
            batch = _BATCH_OF_ID.search(whole)
            yield Completion(f"{folder}/{shown}", f"savepoint of batch {batch[1] if batch else '?'}")
        return


def _batches(asked: TypedWords) -> Iterator[Completion]:
    if asked.place is not None:
        yield from _batches_of(asked.address_of(asked.place))


def _batches_of(address: str) -> Iterator[Completion]:
    from holdfast import layout

    checkpoint = _local(address)
    names = [] if checkpoint is None else checkpoint.names(layout.COMMITS)
    for batch_id in sorted((int(name) for name in names if name.isascii() and name.isdigit()), reverse=True):
        yield Completion(str(batch_id), "batch")


def _operators(asked: TypedWords) -> Iterator[Completion]:
    for operator in _states_at(asked):
        yield Completion(operator.named.display_name, operator.named.operator_kind)


def _states(asked: TypedWords) -> Iterator[Completion]:
    chosen = asked.given.get("operator")
    found = [
        (operator, state)
        for operator in _states_at(asked)
        if chosen is None or chosen in operator.named.spellings
        for state in operator.states
    ]
    names = Counter(state.name for _, state in found)
    for operator, state in found:
        name = state.name if names[state.name] == 1 else state.full_name
        yield Completion(name, operator.named.operator_kind)


def _states_at(asked: TypedWords) -> Iterable[NamedOperator]:
    from holdfast.at_rest.state_reader import StateReader
    from holdfast.savepoints.address import StateAddress

    if asked.place is None:
        return ()
    name, at, batch = asked.place.rpartition("@")
    if not at or not (batch.isascii() and batch.isdigit()):
        name, batch = asked.place, ""
    address = _expanded(asked.address_of(name))
    if _local(address) is None:
        return ()
    place = StateAddress.resolve(f"{address}@{batch}" if batch else address).open_state(
        asked.given.get("batch")
    )
    return StateReader(place.storage, place.batch_id).operators


def _local(address: str) -> LocalStorage | None:
    """Open the directory of a local address; return None for remote storage."""
    from holdfast.storage.local import LocalStorage

    place = local_path(canonical_uri(parse_storage(_expanded(address), "word"), Path.cwd()))
    return None if place is None else LocalStorage(place)


def _expanded(path: str) -> str:
    """Expand a leading `~` as the shell would."""
    return os.path.expanduser(path)  # noqa: PTH111 - a Path would drop the text after the last slash


# The completions of each kind in a `metavar`.
KINDS: Final[Mapping[str, Callable[[TypedWords], Iterator[Completion]]]] = {
    "A": _places,
    "B": _places,
    "BATCH": _batches,
    "CHECKPOINT": _checkpoints,
    "CODE": _codes,
    "DIR": _directories,
    "FILE": _files,
    "FILE.py": _files,
    "FILE.py[:JOB]": _files,
    "JOB": _jobs,
    "OPERATOR": _operators,
    "PLAN.py": _files,
    "SP": _savepoints,
    "STATE": _states,
    "COMMAND": _verbs,
    "VERSION": _spark_releases,
    "[QUERY=]SP": _savepoints_by_query,
}
# Kinds without completions: numbers, times, new names, SQL and JSON.
FREE: Final = frozenset(
    (
        "+",
        "ADDRESS",
        "COLUMN",
        "COLUMN=SQL",
        "G",
        "JSON",
        "KEY",
        "KEY=VALUE",
        "LABEL",
        "N",
        "NAME",
        "NAME=VALUE",
        "OLD",
        "OLD=NEW",
        "PORT",
        "SECONDS",
        "SELECT",
        "SOURCE",
        "SQL",
        "T:P:N",
        "TEXT",
        "TIME",
        "URL",
        "[NAME=]OLD",
    )
)
