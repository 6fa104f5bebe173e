"""`holdfast watch`: record the good batches of a query that runs elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import options, output
from holdfast.cli.until_stopped import until_stopped
from holdfast.cli.where import checkpoint_of
from holdfast.errors import Conflict, Corrupt, HoldfastError, NotFound, Unavailable

if TYPE_CHECKING:
    from holdfast.checkpoints.recording import Noting, Recorder
    from holdfast.storage.port import Storage


def watch(
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT|JOB", help="A checkpoint's path or URI, or a job's name.")
    ],
    every: Annotated[
        str, typer.Option("--every", metavar="TIME", help="How often to look for new batches.")
    ] = "1s",
    once: Annotated[bool, typer.Option("--once", help="Note what is committed now, and end.")] = False,
    anew: Annotated[
        bool, typer.Option("--anew", help="Forget what was noted before, and take what is there for good.")
    ] = False,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Note the hashes of a checkpoint's files as batches commit, for `holdfast checkpoint verify`.

    Ends with Ctrl-C. A job under `holdfast run` is recorded by itself and needs no watching.
    """
    from holdfast.checkpoints.record import RecordFile, in_use, record_path  # noqa: PLC0415 - not for --help
    from holdfast.checkpoints.recording import Recorder  # noqa: PLC0415 - as above
    from holdfast.config.units import parse_duration  # noqa: PLC0415 - as above
    from holdfast.storage import open_storage  # noqa: PLC0415 - as above

    every_ms = parse_duration(every, "--every")
    storage = open_storage(checkpoint_of(checkpoint, home))
    place = options.settings(home).ensure_home().resolve()
    file = RecordFile(record_path(place, storage.uri))
    if not file.lock():
        raise in_use(file.path)
    try:
        recorder = Recorder(storage, file)
        _begin(recorder, storage, anew=anew)
        _tell(storage, recorder.look(), json, first=True)
        if not once:
            _follow(recorder, storage, every_ms / 1000, json)
    finally:
        file.unlock()


def _begin(recorder: Recorder, storage: Storage, *, anew: bool) -> None:
    """Go on with the record; one is begun only of a checkpoint that is whole, as far as can be told."""
    from holdfast import layout  # noqa: PLC0415 - not needed for --help
    from holdfast.checkpoints.verifying import verify  # noqa: PLC0415 - as above

    if storage.size(layout.METADATA) is None and not storage.list(layout.OFFSETS).names:
        raise NotFound(
            "there is no checkpoint",
            where=storage.uri,
            hint="name the directory that holds `metadata`, `offsets` and `commits`",
        )
    if recorder.begin(anew=anew):
        return
    problems = verify(storage).problems
    if problems:
        recorder.discard()
        raise Corrupt(
            "the checkpoint is damaged, and no record of it was begun",
            where=f"{storage.uri}/{problems[0].file}",
            found=problems[0].what,
            hint=f"`holdfast checkpoint verify {storage.uri}` names all damage",
        )


def _follow(recorder: Recorder, storage: Storage, every_s: float, json: bool) -> None:
    told: str | None = None
    with until_stopped() as stopped:
        while not stopped.wait(every_s):
            try:
                _tell(storage, recorder.look(), json)
                told = None
            except (Unavailable, Corrupt, Conflict) as error:  # noqa: PERF203 - it waits longer than that
                told = _tell_error(error, told, json)


def _tell(storage: Storage, noting: Noting, json: bool, *, first: bool = False) -> None:
    if not (noting.files or noting.batches or first):
        return
    if json:
        output.emit_json({"event": "noted", "checkpoint": storage.uri, **noting.as_dict()})
    elif noting.batch_id is None:
        output.line("no batch is committed yet")
    elif noting.behind:
        output.line(
            f"batch {noting.batch_id}: the commit log has gone back; nothing is noted until it goes on"
        )
    else:
        output.line(f"batch {noting.batch_id}: {noting.files:,} files noted, {noting.size_bytes:,} bytes")


def _tell_error(error: HoldfastError, told: str | None, json: bool) -> str:
    """What does not work is told once, and tried again."""
    text = str(error)
    if text != told:
        if json:
            output.emit_json({"event": "error", **error.as_dict()})
        output.say(f"error: {text}")
    return text
