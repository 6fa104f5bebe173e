"""The `holdfast` command within the process of the tests: a verb takes milliseconds.

What a process of its own would find or leave is the same here: arguments, environment, directory, standard
streams (the descriptors, so that children and libraries in C write to them too), umask, warnings, logging,
handlers of signals. All of it is put back afterwards. What cannot be had this way is a case for
`command.command_in`: the time that Python takes to start, the modules it has loaded, signals from outside,
streams that are closed.
"""

from __future__ import annotations

import functools
import importlib
import io
import locale
import logging
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.thread import _threads_queues
from contextlib import ExitStack, contextmanager
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import FrameType
from typing import IO, NoReturn

from command import PROGRAM, Holdfast, environment

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGALRM)

# Where modules stay loaded: Python's own, those that are installed, and those of this repository.
_LASTING = tuple(
    f"{Path(place).resolve()}{os.sep}"
    for place in (
        sys.prefix,
        sys.base_prefix,
        *sysconfig.get_paths().values(),
        str(Path(__file__).parents[2]),
    )
)


def cli_in(folder: Path, home: Path) -> Holdfast:
    """The command, as `command.command_in` gives it, without a process."""

    def call(
        *arguments: str,
        environ: Mapping[str, str] | None = None,
        timeout: float = 120,
        input: str | None = None,  # noqa: A002 - as `subprocess.run` calls it
        umask: int = -1,
    ) -> subprocess.CompletedProcess[str]:
        return run_cli(
            arguments,
            folder=folder,
            environ={**environment(home), **(environ or {})},
            timeout=timeout,
            given=input,
            umask=umask,
        )

    return call


def run_cli(
    arguments: Sequence[str],
    *,
    folder: Path,
    environ: Mapping[str, str],
    timeout: float,
    given: str | None = None,
    umask: int = -1,
    together: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run the function that the installed command calls, and end as Python ends a script.

    Args:
        arguments: The words behind `holdfast`.
        folder: The working directory.
        environ: The whole environment.
        timeout: After how many seconds it is broken off.
        given: What standard input holds; without it, standard input is empty.
        umask: The umask, if not that of the tests.
        together: Whether standard output has both, in the order of writing, as a terminal shows them.

    Raises:
        subprocess.TimeoutExpired: It took too long.
    """
    assert threading.current_thread() is threading.main_thread(), "verbs handle signals: use a process"
    command = [PROGRAM, *arguments]
    with ExitStack() as stack:
        streams = stack.enter_context(_streams(given, together))
        for prepared in (
            _process(folder, environ, umask),
            _python(command),
            _handlers(),
            _logging(),
            _warnings(),
            _threads(),
            _time_limit(command, timeout),
        ):
            stack.enter_context(prepared)
        code = _exit_code(_entry_point().load())
    return subprocess.CompletedProcess(command, code, streams.text(1), "" if together else streams.text(2))


@functools.cache  # it takes as long as a verb
def _entry_point() -> EntryPoint:
    (found,) = entry_points(group="console_scripts", name="holdfast")
    return found


def _exit_code(main: Callable[[], object]) -> int:
    """What `sys.exit(main())` in a script gives the shell."""
    try:
        ended: object = main()
    except SystemExit as error:
        ended = error.code
    except KeyboardInterrupt:
        return -signal.SIGINT
    except subprocess.TimeoutExpired:
        raise
    except BaseException as error:  # as Python does at the end of a script
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    if ended is None or isinstance(ended, int):
        return (ended or 0) & 0xFF
    sys.stderr.write(f"{ended}\n")
    return 1


class _Streams:
    """Files in place of the descriptors 0, 1 and 2."""

    def __init__(self, stack: ExitStack, given: str | None, together: bool) -> None:
        self.files: list[IO[bytes]] = []
        for _ in range(2 if together else 3):
            self.files.append(stack.enter_context(tempfile.TemporaryFile()))  # noqa: SIM115 - the stack closes it
        self.files += self.files[1:] if together else []
        self._encoding = locale.getpreferredencoding(False)
        self._read: dict[int, str] = {}
        self.files[0].write((given or "").encode(self._encoding))
        self.files[0].seek(0)

    def opened(self, number: int) -> io.TextIOWrapper:
        """Python's object over a descriptor, as a new process has it."""
        raw = open(number, "rb" if number == 0 else "wb", closefd=False)  # noqa: SIM115 - closes nothing
        errors = "backslashreplace" if number == 2 else "strict"
        return io.TextIOWrapper(raw, self._encoding, errors, line_buffering=number == 2)

    def keep(self) -> None:
        """Remember what was written."""
        for number in (1, 2):
            self.files[number].seek(0)
            self._read[number] = io.TextIOWrapper(
                io.BytesIO(self.files[number].read()), self._encoding
            ).read()

    def text(self, number: int) -> str:
        """What was written to a descriptor."""
        return self._read[number]


@contextmanager
def _streams(given: str | None, together: bool) -> Iterator[_Streams]:
    before = (sys.stdin, sys.stdout, sys.stderr)
    for stream in before[1:]:
        stream.flush()
    with ExitStack() as stack:
        streams = _Streams(stack, given, together)
        kept = [os.dup(number) for number in range(3)]
        try:
            for number, file in enumerate(streams.files):
                os.dup2(file.fileno(), number)
            sys.stdin, sys.stdout, sys.stderr = (streams.opened(number) for number in range(3))
            try:
                yield streams
            finally:
                for stream in (sys.stdout, sys.stderr):
                    stream.flush()
        finally:
            sys.stdin, sys.stdout, sys.stderr = before
            for number, descriptor in enumerate(kept):
                os.dup2(descriptor, number)
                os.close(descriptor)
            streams.keep()


@contextmanager
def _process(folder: Path, environ: Mapping[str, str], umask: int) -> Iterator[None]:
    """The working directory, the environment and the umask."""
    variables = dict(os.environ)
    place = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    mask = os.umask(0)
    os.umask(mask if umask < 0 else umask)
    try:
        os.chdir(folder)
        _set_environment(environ)
        yield
    finally:
        _set_environment(variables)
        os.fchdir(place)
        os.close(place)
        os.umask(mask)


def _set_environment(variables: Mapping[str, str]) -> None:
    for name in set(os.environ) - set(variables):
        del os.environ[name]
    os.environ.update(variables)
    time.tzset()


@contextmanager
def _python(command: list[str]) -> Iterator[None]:
    """The arguments, the import path, and modules of a person: the next job file may have the same name."""
    arguments, path, modules, hook = sys.argv, list(sys.path), set(sys.modules), sys.excepthook
    sys.argv, sys.excepthook = command, sys.__excepthook__
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.argv, sys.path[:], sys.excepthook = arguments, path, hook
        for name in set(sys.modules) - modules:
            file = getattr(sys.modules[name], "__file__", None)
            if file and not str(Path(file).resolve()).startswith(_LASTING):
                del sys.modules[name]


@contextmanager
def _handlers() -> Iterator[None]:
    former = {number: signal.getsignal(number) for number in _SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


@contextmanager
def _logging() -> Iterator[None]:
    """Without pytest's handlers: what nobody handles goes to standard error."""
    before = {logger: (logger.level, list(logger.handlers), logger.propagate) for logger in _loggers()}
    logging.root.handlers[:] = []
    try:
        yield
    finally:
        for logger in _loggers():
            level, handlers, propagate = before.get(logger, (logging.NOTSET, [], True))
            logger.setLevel(level)
            logger.handlers[:], logger.propagate = handlers, propagate


def _loggers() -> list[logging.Logger]:
    named = list(logging.root.manager.loggerDict.values())
    return [logging.root, *(logger for logger in named if isinstance(logger, logging.Logger))]


@contextmanager
def _warnings() -> Iterator[None]:
    """Python's own filters, and a line to standard error."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: object = None,
        line: str | None = None,
    ) -> None:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))

    with warnings.catch_warnings():
        warnings.resetwarnings()
        warnings.filterwarnings("default", category=DeprecationWarning, module="__main__")
        for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.filterwarnings("ignore", category=category, append=True)
        warnings.showwarning = show
        yield


@contextmanager
def _threads() -> Iterator[None]:
    """Python ends when all threads have that are no daemons; to those of a pool it says that it ends."""
    before = set(threading.enumerate())
    try:
        yield
    finally:
        for thread in threading.enumerate():
            if thread not in before and not thread.daemon and thread not in _threads_queues:
                thread.join()


@contextmanager
def _time_limit(command: list[str], seconds: float) -> Iterator[None]:
    def expired(_number: int, _frame: FrameType | None) -> NoReturn:
        raise subprocess.TimeoutExpired(command, seconds)

    signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
