"""Exception classes of Holdfast, one for each action that the caller can take next.

HoldfastError
├── Invalid      fix the request            exit 2   HTTP 400
├── NotFound     check the address          exit 3   HTTP 404
├── Conflict     plan again                 exit 4   HTTP 409
├── Unavailable  try again later            exit 5   HTTP 503
├── Corrupt      stop, restore              exit 6   HTTP 500
├── Unsupported  change version or feature  exit 7   HTTP 501
├── Failed       fix the job                exit 1   HTTP 500
└── Internal     report a bug               exit 70  HTTP 500
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class HoldfastError(Exception):
    """The base class of all errors that Holdfast raises on purpose.

    The message contains the fact, the location, the value found, the values expected, and a hint with the
    next step. Each of these is an attribute and survives pickling.

    Args:
        fact: What failed, as one clause without a full stop.
        code: The stable code of the error, such as `HF-E2001`; `holdfast explain CODE` explains it.
        where: The file, setting or address concerned.
        found: The value found.
        expected: The values allowed.
        hint: The next command or step.

    Example:
        try:
            hf.health("checkpoints/nowhere")
        except hf.HoldfastError as error:
            print(error.fact, error.where, error.hint)
            assert hf.explain_code(error.code).title
    """

    kind: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = 70
    http_status: ClassVar[int] = 500

    def __init__(
        self,
        fact: str,
        *,
        code: str | None = None,
        where: str | None = None,
        found: str | None = None,
        expected: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(fact)
        self.fact = fact
        self.code = code
        self.where = where
        self.found = found
        self.expected = expected
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.fact if self.code is None else f"{self.fact} [{self.code}]"]
        if self.where and not self.fact.endswith(f" {self.where}"):
            lines.append(f"  in {self.where}")
        if self.found is not None and self.expected is not None:
            lines.append(f"  found {self.found}, expected {self.expected}")
        elif self.found is not None:
            lines.append(f"  found {self.found}")
        elif self.expected is not None:
            lines.append(f"  expected {self.expected}")
        if self.hint:
            lines.append(f"hint: {self.hint}")
        # Half of a surrogate pair, which a damaged file may contain, could not be printed.
        return "\n".join(lines).encode("utf-8", "backslashreplace").decode()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.fact, self.facts())

    def facts(self) -> dict[str, str | None]:
        """Return the code, location, values and hint as a dict; the fact is omitted."""
        return {
            "code": self.code,
            "where": self.where,
            "found": self.found,
            "expected": self.expected,
            "hint": self.hint,
        }

    def as_dict(self) -> dict[str, str | int | None]:
        """Return the JSON form of the error, as written by the command line and the HTTP API."""
        return {"error": self.fact, "kind": self.kind, "exit_code": self.exit_code, **self.facts()}


def _rebuild(kind: type[HoldfastError], fact: str, facts: dict[str, str | None]) -> HoldfastError:
    return kind(fact, **facts)


class Invalid(HoldfastError):
    """An invalid request, which the caller must fix.

    Example:
        try:
            hf.every("soon")
        except hf.Invalid as error:
            assert error.exit_code == 2
            assert error.found == "'soon'"
    """

    kind = "invalid"
    exit_code = 2
    http_status = 400


class NotFound(HoldfastError):
    """A missing object or address, which the caller must check.

    Example:
        try:
            hf.health("checkpoints/nowhere")
        except hf.NotFound as error:
            assert error.exit_code == 3
    """

    kind = "not-found"
    exit_code = 3
    http_status = 404


class Conflict(HoldfastError):
    """A conflict: the resource is in use or has changed, and the caller must plan again.

    Example:
        try:
            hf.savepoints.restore("savepoints@daily", "checkpoints/visits")  # it exists already
        except hf.Conflict as error:
            assert error.exit_code == 4
    """

    kind = "conflict"
    exit_code = 4
    http_status = 409


class Unavailable(HoldfastError):
    """A temporary failure of a dependency; the caller can try again later.

    Example:
        def health_of_visits(attempts=3):
            for left in reversed(range(attempts)):
                try:
                    return hf.health("checkpoints/visits")
                except hf.Unavailable:  # the storage does not answer
                    if not left:
                        raise

        assert health_of_visits().ok
    """

    kind = "unavailable"
    exit_code = 5
    http_status = 503


class Corrupt(HoldfastError):
    """Damage to stored data; the caller must stop and restore.

    Example:
        from pathlib import Path

        Path("checkpoints/visits/metadata").write_text("{")
        try:
            hf.checkpoint("checkpoints/visits")
        except hf.Corrupt as error:
            assert error.exit_code == 6
    """

    kind = "corrupt"
    exit_code = 6
    http_status = 500


class Unsupported(HoldfastError):
    """A request that the version or feature does not support; the caller must change one of them.

    Example:
        try:
            hf.check_spark("checkpoints/visits", "9.0")
        except hf.Unsupported as error:
            assert error.exit_code == 7
    """

    kind = "unsupported"
    exit_code = 7
    http_status = 501


class Failed(HoldfastError):
    """The permanent failure of a job, which the caller must fix.

    Example:
        def compare_versions():
            try:
                return hf.compare("savepoints@daily", original="visits.py", new="new/visits.py").equal
            except hf.Failed as error:  # one of the two versions failed
                print(error.fact, error.hint)
                return False

        assert hf.Failed.exit_code == 1
    """

    kind = "failed"
    exit_code = 1
    http_status = 500


class Internal(HoldfastError):
    """A bug in Holdfast, which the caller should report.

    Example:
        def run_nightly_check():
            try:
                return hf.health("checkpoints/visits").ok
            except hf.Internal as error:
                raise SystemExit(f"report this: {error}") from error

        assert run_nightly_check()
    """


BY_KIND: dict[str, type[HoldfastError]] = {
    each.kind: each
    for each in (Invalid, NotFound, Conflict, Unavailable, Corrupt, Unsupported, Failed, Internal)
}


def error_from(values: Mapping[str, Any]) -> HoldfastError:
    """Return the error that `HoldfastError.as_dict` wrote, as an exception of its class."""
    facts = {key: values.get(key) for key in ("code", "where", "found", "expected", "hint")}
    return BY_KIND.get(str(values.get("kind")), Internal)(str(values["error"]), **facts)
