"""How much memory Spark's Python workers take, from the kernel's own books."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Memory:
    """The largest figures seen of any one worker.

    Attributes:
        resident_bytes: All pages in memory at the worst moment, those of mapped files among them.
        private_bytes: Pages that are the worker's own at the worst moment that was looked at.
    """

    resident_bytes: int = 0
    private_bytes: int = 0


class WorkerMemory:
    """Looks at the Python workers below this process for as long as it is entered.

    The kernel keeps the peak of resident memory, so only a worker that lives for less than
    `interval_s` can be missed. It keeps no peak of private memory: that is the largest sample.
    On a system without /proc the figures stay 0.
    """

    def __init__(self, root: int, interval_s: float = 0.25) -> None:
        self._root = root
        self._interval_s = interval_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="worker-memory", daemon=True)
        self.peak = Memory()

    def __enter__(self) -> WorkerMemory:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def look(self) -> None:
        """Take in the present figures."""
        found = [_memory_of(process) for process in _descendants(self._root) if _is_worker(process)]
        self.peak = Memory(
            max([self.peak.resident_bytes, *(each.resident_bytes for each in found)]),
            max([self.peak.private_bytes, *(each.private_bytes for each in found)]),
        )

    def _watch(self) -> None:
        while True:
            self.look()
            if self._over.wait(self._interval_s):
                return


def _descendants(root: int) -> Iterator[Path]:
    children: dict[int, list[int]] = {}
    for each in PROC.glob("[0-9]*/stat"):
        try:
            # The command's name stands in parentheses and may hold anything.
            parent = int(each.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        children.setdefault(parent, []).append(int(each.parent.name))
    waiting = children.get(root, [])
    while waiting:
        process = waiting.pop()
        yield PROC / str(process)
        waiting += children.get(process, [])


def _is_worker(process: Path) -> bool:
    try:
        arguments = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(each.startswith(b"pyspark.") for each in arguments)


def _memory_of(process: Path) -> Memory:
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return Memory()
    sizes = {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}
    return Memory(*(1024 * int(sizes.get(name, ["0"])[0]) for name in ("VmHWM", "RssAnon")))
