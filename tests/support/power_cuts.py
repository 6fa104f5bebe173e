"""Power cuts: record what a process writes, and make every directory that a cut at any moment may leave.

`strace` records each change of a directory tree and each flush, of all processes that a command starts, JVMs
included. From the record come the states of the disk that a file system may show after a power cut. Each is
written to a new directory, where the test reads it with the product's own readers. Nothing is mounted, and
the same record always gives the same states.

Two file systems are modelled; after a cut, both keep what was flushed, and may keep or lose the rest.

`POSIX`, the weakest that a program may rely on:
- a flush of a file keeps its bytes and its length, not its name;
- a flush of a directory keeps the names in it; a rename is atomic and kept by a flush of its new directory;
- what was not flushed is kept or lost one by one, in any order: each name, and each write, which may also
  be kept in part or as zeros of the right length.

`EXT4`, with `data=ordered` and delayed allocation, as Linux distributions mount it:
- names are kept in the order in which they changed: a cut loses the newest ones;
- a flush of any file or directory keeps all names before it;
- the bytes of a file that was not flushed may be missing although its name is kept, and then it is empty,
  or shorter; a rename over an existing file keeps the bytes of the new file (`auto_da_alloc`).
"""

from __future__ import annotations

import os
import random
import re
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

POSIX, EXT4 = "posix", "ext4"
CALLS = (
    "open,openat,openat2,creat,write,pwrite64,writev,pwritev,pwritev2,sendfile,copy_file_range,truncate,"
    "ftruncate,fallocate,lseek,fsync,fdatasync,sync,syncfs,rename,renameat,renameat2,link,linkat,unlink,"
    "unlinkat,mkdir,mkdirat,rmdir,symlink,symlinkat"
)
# A line that a recorded program writes to its output, at the moment at which it has promised something.
MARK = "power-cuts:"
ROOT = 0


@dataclass(frozen=True)
class Write:
    """Bytes written to a file."""

    file: int
    at: int
    data: bytes


@dataclass(frozen=True)
class Resize:
    """A file's new length."""

    file: int
    size: int


@dataclass(frozen=True)
class Names:
    """Names that changed at once: (directory, name, the file or directory, or None)."""

    entries: tuple[tuple[int, str, int | None], ...]
    replaces: bool = False


@dataclass(frozen=True)
class Flush:
    """A flush of a file or directory, or of everything."""

    inode: int | None


@dataclass(frozen=True)
class Mark:
    """What the program has promised from here on."""

    text: str


Change = Write | Resize | Names
Step = Change | Flush | Mark


@dataclass
class Tree:
    """Directories and files by number, and the directory that is number `ROOT`."""

    folders: dict[int, dict[str, int]] = field(default_factory=lambda: {ROOT: {}})
    files: dict[int, bytes] = field(default_factory=dict)

    def copy(self) -> Tree:
        """A tree that can be changed."""
        return Tree({number: dict(names) for number, names in self.folders.items()}, dict(self.files))

    def apply(self, change: Change) -> None:
        """Make a change."""
        if isinstance(change, Names):
            for folder, name, inode in change.entries:
                if inode is None:
                    self.folders[folder].pop(name, None)
                else:
                    self.folders[folder][name] = inode
            return
        data = self.files.get(change.file, b"")
        if isinstance(change, Resize):
            self.files[change.file] = data[: change.size].ljust(change.size, b"\0")
            return
        end = change.at + len(change.data)
        self.files[change.file] = data[: change.at].ljust(change.at, b"\0") + change.data + data[end:]

    def paths(self, folder: int = ROOT, above: str = "") -> Iterator[tuple[str, int]]:
        """Every path, directories included, with its number."""
        for name, inode in self.folders[folder].items():
            yield f"{above}{name}", inode
            if inode in self.folders:
                yield from self.paths(inode, f"{above}{name}/")

    def contents(self) -> dict[str, bytes | None]:
        """The bytes of every path; None for a directory."""
        return {
            path: None if inode in self.folders else self.files.get(inode, b"")
            for path, inode in self.paths()
        }

    def write_to(self, root: Path) -> None:
        """Write it to a new directory; hard links stay hard links."""
        root.mkdir(parents=True)
        first: dict[int, Path] = {}
        for path, inode in self.paths():
            target = root / path
            if inode in self.folders:
                target.mkdir()
            elif inode in first:
                os.link(first[inode], target)
            else:
                first[inode] = target
                target.write_bytes(self.files.get(inode, b""))

    @classmethod
    def read(cls, root: Path) -> tuple[Tree, dict[int, int]]:
        """Read a directory; also the numbers by the numbers that the system gives."""
        tree, numbers = cls(), {root.stat().st_ino: ROOT}
        for above, folders, files in os.walk(root):
            here = numbers[Path(above).stat().st_ino]
            for name in (*folders, *files):
                path = Path(above) / name
                found = path.lstat()
                number = numbers.setdefault(found.st_ino, len(numbers))
                tree.folders[here][name] = number
                if stat.S_ISDIR(found.st_mode):
                    tree.folders[number] = {}
                elif number not in tree.files:
                    tree.files[number] = path.read_bytes() if stat.S_ISREG(found.st_mode) else b""
        return tree, numbers


@dataclass(frozen=True)
class State:
    """A tree that a cut may leave, its number, what had been promised before, and how it came about."""

    tree: Tree
    number: int
    promised: tuple[str, ...]
    how: str


class Recording:
    """What a command changed below a directory.

    Args:
        root: The directory as it is before the command.
    """

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.start, _ = Tree.read(root)
        self.steps: list[Step] = []
        self._live = self.start.copy()
        self._next = 1 + max((*self.start.folders, *self.start.files))
        self._offsets: dict[tuple[str, int], int] = {}

    def run(
        self, command: Sequence[str], *, env: Mapping[str, str] | None = None, timeout: float = 600
    ) -> str:
        """Run a command in the directory and return its output.

        Raises:
            AssertionError: The command failed, or the record does not give the directory that it left.
        """
        log = Path(f"{self.root}.strace")
        # A program and its JVM find this directory by names with links in them too.
        assert os.path.realpath(self.root) == self.root
        trace = ["strace", "-f", "-y", "-xx", "-z", "-s", "100000000", "--seccomp-bpf", "-qq"]
        times = ["--absolute-timestamps=format:unix,precision:ns", "--syscall-times=ns"]
        run = subprocess.run(
            [*trace, *times, "-e", f"trace={CALLS}", "-e", "signal=none", "-o", str(log), *command],
            cwd=self.root, env=None if env is None else dict(env), capture_output=True, text=True,
            timeout=timeout, check=False,
        )  # fmt: skip
        assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-4000:]
        with log.open() as lines:
            self.read(lines)
        log.unlink()
        self._require_same()
        return run.stdout

    def read(self, lines: Iterable[str]) -> None:
        """Read the lines of strace: calls take effect in the order in which they ended."""
        calls = []
        begun: dict[str, str] = {}
        for line in lines:
            thread, _, call = line.rstrip("\n").partition(" ")
            call = call.lstrip()
            if call.endswith("<unfinished ...>"):
                begun[thread] = call.removesuffix("<unfinished ...>")
                continue
            if (resumed := re.match(r"[\d.]+ <\.\.\. \w+ resumed>", call)) is not None:
                call = begun.pop(thread) + call[resumed.end() :]
            found = _CALL.fullmatch(call)
            if found is None:
                assert " = ? " in call or "+++" in call or call.endswith("= ?"), call[:200]
                continue
            start_ns = int(found["at"].replace(".", ""))
            end_ns = start_ns + int(found["took"].replace(".", ""))
            name, arguments = found["name"], tuple(_ARGUMENT.findall(found["arguments"]))
            calls.append((end_ns, start_ns, name, arguments, found["result"]))
        calls.sort(key=lambda call: call[0])
        for end_ns, start_ns, name, arguments, result in calls:
            del end_ns, start_ns
            self._take(name, arguments, result)

    def _take(self, name: str, arguments: tuple[str, ...], result: str) -> None:
        if name in ("write", "pwrite64", "writev", "pwritev", "pwritev2"):
            self._written(name, arguments, int(result.partition(" ")[0]))
        elif name in ("open", "openat", "openat2", "creat"):
            self._opened(arguments if name.startswith("openat") else ("AT_FDCWD<>", *arguments), result)
        elif name in ("fsync", "fdatasync", "syncfs", "sync"):
            path = self._below(_path(arguments[0])) if arguments else ""
            if path is not None:
                inode = self._find(path)
                if name.startswith("sync"):
                    self.steps.append(Flush(None))
                elif inode is not None:
                    self.steps.append(Flush(inode))
        elif name == "lseek":
            if (inode := self._file(arguments[0])) is not None:
                self._offsets[_descriptor(arguments[0]), inode] = int(result.partition(" ")[0])
        elif name in ("ftruncate", "truncate", "fallocate"):
            self._resized(name, arguments)
        elif name in ("sendfile", "copy_file_range"):
            target = arguments[0] if name == "sendfile" else arguments[2]
            assert self._file(target) is None, f"{name} into the directory is not recorded"
        else:
            self._renamed(name, arguments)

    def _written(self, name: str, arguments: tuple[str, ...], count: int) -> None:
        if name.endswith(("v", "v2")):
            data = b"".join(_bytes(text) for text in re.findall(r'iov_base=("[^"]*")', arguments[1]))[:count]
        else:
            data = _bytes(arguments[1])[:count]
        number = _descriptor(arguments[0])
        if number in ("1", "2"):
            for line in data.decode(errors="replace").splitlines():
                if line.startswith(MARK):
                    self.steps.append(Mark(line.removeprefix(MARK).strip()))
            return
        inode = self._file(arguments[0])
        if inode is None:
            return
        if name.startswith("p"):
            at = int(arguments[-1 if name == "pwrite64" else 3])
        else:
            at = self._offsets.get((number, inode), 0)
            if at < 0:  # opened for appending
                at = len(self._live.files.get(inode, b""))
            else:
                self._offsets[number, inode] = at + len(data)
        self._change(Write(inode, at, data))

    def _opened(self, arguments: tuple[str, ...], result: str) -> None:
        flags = arguments[2]
        path = self._below(_joined(arguments[0], arguments[1], _path(result)))
        if path is None or "O_TMPFILE" in flags:
            assert path is None, "O_TMPFILE is not recorded"
            return
        inode = self._find(path)
        if inode is None:
            if "O_CREAT" not in flags:
                return
            inode = self._new()
            self._live.files[inode] = b""
            self._change(Names((self._entry(path, inode),)))
        elif "O_TRUNC" in flags and self._live.files.get(inode):
            self._change(Resize(inode, 0))
        self._offsets[_descriptor(result), inode] = -1 if "O_APPEND" in flags else 0

    def _resized(self, name: str, arguments: tuple[str, ...]) -> None:
        if name == "truncate":
            path = self._below(_text(arguments[0]))
            inode = None if path is None else self._find(path)
        else:
            inode = self._file(arguments[0])
        if inode is None:
            return
        if name == "fallocate":
            if "KEEP_SIZE" not in arguments[1] and arguments[1] != "0":
                raise AssertionError(f"fallocate {arguments[1]} is not recorded")
            size = int(arguments[2]) + int(arguments[3])
            if "KEEP_SIZE" in arguments[1] or size <= len(self._live.files.get(inode, b"")):
                return
        else:
            size = int(arguments[1])
        self._change(Resize(inode, size))

    def _renamed(self, name: str, arguments: tuple[str, ...]) -> None:
        at = name.endswith(("at", "at2"))
        if name.startswith(("mkdir", "unlink", "rmdir")):
            path = self._below(_joined(*arguments[:2]) if at else _joined("AT_FDCWD<>", arguments[0]))
            if not path:
                return
            if not name.startswith("mkdir"):
                self._change(Names((self._entry(path, None),)))
                return
            folder = self._new()
            self.start.folders[folder], self._live.folders[folder] = {}, {}
            self._change(Names((self._entry(path, folder),)))
            return
        if name.startswith("symlink"):
            target = self._below(_joined(*arguments[1:3]) if at else _joined("AT_FDCWD<>", arguments[1]))
            assert target is None, "symbolic links are not recorded"
            return
        pairs = (arguments[:2], arguments[2:4]) if at else ((None, arguments[0]), (None, arguments[1]))
        source, target = (self._below(_joined(folder or "AT_FDCWD<>", path)) for folder, path in pairs)
        if source is None or target is None:
            assert source == target, f"{name} into or out of the directory"
            return
        inode, there = self._find(source), self._find(target)
        assert inode is not None, f"{name} {source}"
        if name.startswith("link"):
            self._change(Names((self._entry(target, inode),)))
        elif "EXCHANGE" in "".join(arguments[4:]):
            self._change(Names((self._entry(source, there), self._entry(target, inode))))
        elif inode != there:
            entries = (self._entry(source, None), self._entry(target, inode))
            self._change(Names(entries, replaces=there is not None))

    def _change(self, change: Change) -> None:
        self._live.apply(change)
        self.steps.append(change)

    def _new(self) -> int:
        self._next += 1
        return self._next

    def _below(self, path: str) -> str | None:
        """A path relative to the directory, or None if it is outside."""
        path = os.path.normpath(path if path.startswith("/") else f"{self.root}/{path}")
        if path == self.root:
            return ""
        return path[len(self.root) + 1 :] if path.startswith(f"{self.root}/") else None

    def _find(self, path: str) -> int | None:
        here: int | None = ROOT
        for name in path.split("/") if path else ():
            here = self._live.folders.get(here, {}).get(name) if here is not None else None
        return here

    def _entry(self, path: str, inode: int | None) -> tuple[int, str, int | None]:
        folder, _, name = path.rpartition("/")
        number = self._find(folder)
        assert number is not None, path
        return number, name, inode

    def _file(self, descriptor: str) -> int | None:
        path = self._below(_path(descriptor)) if "</" in descriptor or "<\\x2f" in descriptor else None
        return None if path is None or descriptor.endswith("(deleted)") else self._find(path)

    def _require_same(self) -> None:
        """Compare the recorded tree with the directory; shared memory of SQLite is written without calls."""
        real, _ = Tree.read(Path(self.root))
        recorded, found = self._live.contents(), real.contents()
        wrong = [
            path
            for path in recorded.keys() | found.keys()
            if recorded.get(path, 0) != found.get(path, 0) and not path.endswith("-shm")
        ]
        assert not wrong, f"not recorded as it is: {sorted(wrong)[:8]}"

    def states(self, model: str, *, seed: int = 0, random_states: int = 2) -> Iterator[State]:
        """Every state in which a cut may leave the directory, each once.

        Before each flush, each promise and at the end: nothing lost, as after a kill; everything lost; names
        without bytes; bytes without names; and some drawn by seed. Before a promise, and before the flush
        that makes a change safe: this change lost alone, its file torn, or zeros. Before the next flush after
        a change: this change kept alone, and the names of its directory.

        Args:
            model: The file system.
            seed: The seed.
            random_states: How many are drawn at each cut.
        """
        rng = random.Random(seed)
        safe_from = self._safe_from(model)
        seen: set[tuple[frozenset[object], tuple[str, ...]]] = set()
        promised: tuple[str, ...] = ()
        settled, recent = self.start.copy(), list[int]()
        fresh: set[int] = set()
        for at, step in enumerate((*self.steps, None)):
            if step is not None and not isinstance(step, Flush | Mark):
                recent.append(at)
                fresh.add(at)
                continue
            recent = self._settle(settled, recent, {i for i in recent if safe_from[i] <= at})
            open_ = [i for i in recent if safe_from[i] > at]
            closing = open_ if not isinstance(step, Flush) else [i for i in open_ if safe_from[i] == at + 1]
            for how, kept, torn in self._choices(model, open_, closing, fresh, rng, random_states):
                tree = settled.copy()
                for i in recent:
                    if i in kept or safe_from[i] <= at:
                        tree.apply(torn[i] if i in torn else self._change_at(i))
                key = (frozenset(tree.contents().items()), promised)
                if key not in seen:
                    seen.add(key)
                    yield State(
                        tree, len(seen), promised, f"{model}: {how}, cut before step {at}, {_told(step)}"
                    )
            fresh = set()
            if isinstance(step, Mark):
                promised = (*promised, step.text)

    def _settle(self, tree: Tree, recent: list[int], safe: set[int]) -> list[int]:
        """Make those changes in a tree which no cut undoes, and return the others, in order."""
        left, touched = [], set[object]()
        for i in recent:
            change = self._change_at(i)
            own: set[object] = {change.file} if not isinstance(change, Names) else set()
            if isinstance(change, Names):
                own = {(folder, name) for folder, name, _ in change.entries}
            if i in safe and not own & touched:
                tree.apply(change)
            else:
                touched |= own
                left.append(i)
        return left

    def _safe_from(self, model: str) -> dict[int, int]:
        """For each change, the number of steps after which no cut undoes it."""
        never, safe = len(self.steps) + 1, {}
        names, data, all_names, everything = {}, {}, never, never
        for i in reversed(range(len(self.steps))):
            step = self.steps[i]
            if isinstance(step, Flush):
                all_names = i + 1
                if step.inode is None:
                    everything = i + 1
                else:
                    names[step.inode] = data[step.inode] = i + 1
            elif isinstance(step, Names):
                own = names.get(step.entries[-1][0], never)
                safe[i] = min(own, everything) if model == POSIX else all_names
            elif not isinstance(step, Mark):
                safe[i] = min(data.get(step.file, never), everything)
        return safe

    def _choices(
        self,
        model: str,
        open_: list[int],
        closing: list[int],
        fresh: set[int],
        rng: random.Random,
        random_states: int,
    ) -> Iterator[tuple[str, set[int], dict[int, Change]]]:
        """What of the changes that were not flushed is kept: how it is called, the changes, and torn ones."""
        everything = set(open_)
        yield "nothing lost", everything, {}
        names = [i for i in open_ if isinstance(self.steps[i], Names)]
        data = [i for i in open_ if not isinstance(self.steps[i], Names)]
        files = dict.fromkeys(self._inode(i) for i in closing if not isinstance(self.steps[i], Names))
        if not open_:
            return
        if model == EXT4:
            counts = {0, len(names), *(k for k, i in enumerate(names) if i in fresh)}
            for count in sorted(counts):
                kept = set(names[:count])
                yield f"{len(names) - count} names and all bytes lost", self._with_replaced(kept, data), {}
                yield f"{len(names) - count} names lost", kept | set(data), {}
            for file in files:
                kept = everything - {i for i in data if self._inode(i) == file}
                yield f"the bytes of file {file} lost", self._with_replaced(kept, data), {}
            for _ in range(random_states):
                kept = set(names[: rng.randint(0, len(names))]) | {i for i in data if rng.random() < 0.5}
                yield "a part lost", self._with_replaced(kept, data), {}
            return
        yield "everything lost", set(), {}
        yield "all bytes lost", set(names), {}
        yield "all names lost", set(data), {}
        for i in closing:
            yield f"step {i} lost, {_told(self.steps[i])}", everything - {i}, {}
        for i in fresh & everything:
            yield f"step {i} kept alone, {_told(self.steps[i])}", {i}, {}
        for folder in {self._folder(i) for i in names if i in fresh}:
            kept = {i for i in names if self._folder(i) == folder}
            yield "the names of one directory kept", kept, {}
            yield "the names of one directory and all bytes kept", kept | set(data), {}
        for file in files:
            own = [i for i in data if self._inode(i) == file]
            yield f"file {file} torn", everything, {i: _half(self.steps[i]) for i in own}
            yield f"file {file} of zeros", everything, {i: _zeros(self.steps[i]) for i in own}
        for _ in range(random_states):
            yield "a part lost", {i for i in open_ if rng.random() < 0.5}, {}

    def _with_replaced(self, kept: set[int], data: list[int]) -> set[int]:
        """Keep the bytes of files whose rename over an older file is kept."""
        replaced = {
            (self.steps[i].entries[-1][2], i)  # type: ignore[union-attr]
            for i in kept
            if isinstance(self.steps[i], Names) and self.steps[i].replaces  # type: ignore[union-attr]
        }
        return kept | {i for i in data for inode, at in replaced if self._inode(i) == inode and i < at}

    def _change_at(self, i: int) -> Change:
        step = self.steps[i]
        assert not isinstance(step, Flush | Mark)
        return step

    def _inode(self, i: int) -> int:
        step = self.steps[i]
        assert isinstance(step, Write | Resize)
        return step.file

    def _folder(self, i: int) -> int:
        step = self.steps[i]
        assert isinstance(step, Names)
        return step.entries[-1][0]


def _half(write: Step) -> Change:
    if not isinstance(write, Write):
        assert isinstance(write, Resize)
        return write
    return Write(write.file, write.at, write.data[: len(write.data) // 2])


def _zeros(write: Step) -> Change:
    if not isinstance(write, Write):
        assert isinstance(write, Resize)
        return write
    return Write(write.file, write.at, bytes(len(write.data)))


def _told(step: Step | None) -> str:
    if isinstance(step, Write):
        return f"{len(step.data)} bytes at {step.at} of file {step.file}"
    if isinstance(step, Names):
        return ", ".join(
            f"{name} removed" if inode is None else f"{name} of file {inode}"
            for _, name, inode in step.entries
        )
    return "the end" if step is None else str(step)


_CALL = re.compile(
    r"(?P<at>\d+\.\d+) (?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>.*?) <(?P<took>[\d.]+)>"
)
# Strings are all in hexadecimal, so nothing in them looks like an end.
_ARGUMENT = re.compile(r'(\{[^}]*\}|\[(?:[^\]])*\]|"[^"]*"(?:\.\.\.)?|[^,\s][^,]*?)(?:, |$)')


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.strip('"').replace("\\x", ""))


def _text(text: str) -> str:
    return os.fsdecode(_bytes(text))


def _path(descriptor: str) -> str:
    """The path in `3<path>`."""
    inner = descriptor[descriptor.find("<") + 1 : descriptor.rfind(">")]
    return os.fsdecode(bytes.fromhex(inner.replace("\\x", ""))) if inner.startswith("\\x") else inner


def _descriptor(text: str) -> str:
    return text.partition("<")[0]


def _joined(folder: str, name: str, known: str = "") -> str:
    """The path of a name in an open directory."""
    path = _text(name)
    if path.startswith("/"):
        return path
    return f"{_path(folder)}/{path}" if _path(folder) else known or path


def cleared(folder: Path) -> Path:
    """A path at which there is nothing."""
    shutil.rmtree(folder, ignore_errors=True)
    return folder
