"""Load a job from a file, and explain its settings."""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

from holdfast.config.checks import SECRET_VARIABLES, local_path
from holdfast.config.policies import scaling_knobs
from holdfast.config.setting_report import SettingReport
from holdfast.errors import HoldfastError, Invalid, NotFound
from holdfast.extras import missing_package
from holdfast.jobs.definition import Job
from holdfast.json_shapes import JsonShape

# PySpark's own condition. The classic way to meet it is a UDF whose type is given as text.
_NO_SESSION = "[SESSION_OR_CONTEXT_NOT_EXISTS]"
_BEFORE_SPARK = (
    "a job file is loaded before Spark starts: move this code into the job's function, or give a UDF its"
    " type as an object, such as LongType()"
)
_NOT_INSTALLED = "install it for the Python that runs Holdfast, or put it next to the job file"
_EXAMPLE = "@holdfast.job(name='…', checkpoint='…') above a function that takes the session"


def split_target(target: str) -> tuple[Path, str | None]:
    """Split `FILE.py:JOB` into path and job name."""
    path, colon, name = target.rpartition(":")
    if colon and path.endswith(".py") and name:
        return Path(path), name
    return Path(target), None


def require_job_file(target: str | os.PathLike[str]) -> None:
    """Raise unless the target is a readable Python file; the file is not run.

    Raises:
        NotFound: The file does not exist.
        Invalid: The file is not a Python file.
    """
    _require_file(split_target(os.fspath(target))[0])


def load_job(target: str) -> Job:
    """Run a job file and return the job in it.

    The file runs as a module of its own, with its directory first on the import path, as Python does for a
    script. It costs as much as the file's imports.

    Raises:
        NotFound: The file or the job in it does not exist.
        Invalid: The file is not a Python file, does not compile, raises while it is loaded, has no job, or
            has several and none was chosen.
    """
    path, wanted = split_target(target)
    module = load_module(path)
    jobs = {name: value for name, value in vars(module).items() if isinstance(value, Job)}
    return _choose(jobs, wanted, path)


def load_module(path: Path) -> ModuleType:
    """Run a user's file as a module of its own; Holdfast's own secrets are hidden from it.

    Raises:
        NotFound: The file does not exist.
        Invalid: The file is not a Python file, does not compile, or raises while it is loaded.
    """
    _require_file(path)
    for name in SECRET_VARIABLES:
        os.environ.pop(name, None)
    return _run(path)


def _require_file(path: Path) -> None:
    try:
        is_there, is_file = path.exists(), path.is_file()
    except OSError:  # no file has such a name
        is_there = is_file = False
    if not is_there:
        raise NotFound(
            "the job file does not exist",
            code="HF-E3043",
            where=str(path),
            hint="give the path as FILE.py or FILE.py:JOB",
        )
    if path.suffix != ".py" or not is_file:
        raise _no_python(path)
    try:
        path.open("rb").close()
    except OSError as error:
        raise Invalid(
            "the job file cannot be read",
            code="HF-E2221",
            where=str(path),
            found=error.strerror,
            hint="give this user read permission",
        ) from error


def _no_python(path: Path) -> Invalid:
    return Invalid(
        "the job file is not a Python file",
        code="HF-E2222",
        where=str(path),
        expected="FILE.py or FILE.py:JOB",
        hint="give the file that contains the job's function",
    )


def _choose(jobs: dict[str, Job], wanted: str | None, path: Path) -> Job:
    names = ", ".join(job.name for job in jobs.values())
    if not jobs:
        raise Invalid(
            "the file has no job",
            code="HF-E2223",
            where=str(path),
            expected=_EXAMPLE,
            hint="put `@hf.job(…)` above the function that returns the sink",
        )
    if wanted is not None:
        for variable, job in jobs.items():
            if wanted in (variable, job.name):
                return job
        raise NotFound(
            f"the file has no job {wanted!r}",
            code="HF-E3044",
            expected=names,
            where=str(path),
            hint=f"give one of its jobs, for example {path.name}:{next(iter(jobs.values())).name}",
        )
    if len({id(job) for job in jobs.values()}) > 1:
        first = next(iter(jobs.values())).name
        raise Invalid(
            "the file has several jobs",
            code="HF-E2224",
            where=str(path),
            found=names,
            hint=f"choose one, for example {path.name}:{first}",
        )
    return next(iter(jobs.values()))


def _run(path: Path) -> ModuleType:
    name = f"holdfast_job_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise _no_python(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except HoldfastError:
        raise
    except SyntaxError as error:
        raise Invalid(
            "the job file does not compile",
            code="HF-E2225",
            where=f"{error.filename or path}:{error.lineno}",
            found=f"{error.msg}: {(error.text or '').strip()}",
            hint=f"fix the error and check with `python -m py_compile {path.name}`",
        ) from error
    except ModuleNotFoundError as error:
        lacking = missing_package(error)
        raise Invalid(
            "the job file needs a module that is not installed",
            code="HF-E2226",
            where=_last_line_in(path, error),
            found=f"{type(error).__name__}: {error}",
            hint=lacking.hint if lacking else _NOT_INSTALLED,
        ) from error
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise Invalid(
            "the job file raised an error while it was loaded",
            code="HF-E2227",
            where=_last_line_in(path, error),
            found=f"{type(error).__name__}: {error}",
            hint=_BEFORE_SPARK
            if _NO_SESSION in str(error)
            else "fix the error at this line, and check it with `holdfast run FILE.py --dry-run`",
        ) from error
    return module


def _last_line_in(path: Path, error: BaseException) -> str:
    """Return the deepest line of the user's own file in a traceback."""
    own = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename) == path.resolve()
    ]
    return f"{path}:{own[-1]}" if own else str(path)


@dataclass(frozen=True, slots=True)
class JobExplained(JsonShape):
    """A job's settings, each with its resulting Spark settings and the reason.

    Attributes:
        name: The job's name.
        checkpoint: The checkpoint of its queries.
        goes_on: The answer whether a start would continue from a checkpoint: `yes, …`, `no, …` or `unknown:
            …`.
        knobs: The settings.
    """

    name: str
    checkpoint: str
    goes_on: str
    knobs: tuple[SettingReport, ...]


def explain_job(target: str, overrides: Mapping[str, str] | None = None) -> JobExplained:
    """Load a job file and explain its settings, without starting it."""
    return explained(load_job(target).with_overrides(overrides or {}))


def settings_of(job: Job) -> dict[str, Sequence[SettingReport]]:
    """Return the settings of a job by the argument that groups them, in the order of reports."""
    return {
        "checkpoint": job.checkpoint.knobs(),
        "backend": job.backend.knobs(),
        "restart": job.restart.knobs(),
        "recovery": job.recovery.knobs(),
        "alerts": job.alerts.knobs(),
        "autoscale": scaling_knobs(job.autoscale),
    }


def explained(job: Job) -> JobExplained:
    """Explain the settings of a job."""
    knobs = tuple(knob for group in settings_of(job).values() for knob in group)
    uri = job.checkpoint.uri(Path.cwd())
    return JobExplained(job.name, uri, _GOES_ON[has_checkpoint(uri)], knobs)


def has_checkpoint(uri: str) -> bool | None:
    """Return whether a job has run on a checkpoint before; None if it is not on this machine."""
    place = local_path(uri)
    if place is None:
        return None
    # One query has its checkpoint there, several have theirs below it.
    return any((folder / "metadata").is_file() for folder in (place, *place.glob("*/")))


_GOES_ON: Final = {
    None: "unknown: the checkpoint is not on this machine",
    True: "yes, from its checkpoint",
    False: "no, it starts from scratch",
}
