"""One of several supervisors of a scripted job that kills or suspends itself at a step of a live rescale.

`rescaling_leader.py SCRIPT HOME ADDRESS LEASE_S HOST STEP SIGNAL`. The steps are those of `STEPS`; `never` is
none of them. It prints its events as lines of JSON, and `{"event": "step"}` before it signals itself.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from telling_supervisor import supervise

from holdfast.config.policies import Leading
from holdfast.jobs import pending_rescale
from holdfast.jobs.candidacy import Candidacy
from holdfast.jobs.rescaler import Rescaler
from holdfast.ownership.elections import elections

Function = Callable[..., Any]


def at(step: str, owner: Any, name: str, *, after: bool, when: Function = lambda **_: True) -> None:
    """Signal this process before or after the first call of a function."""
    function = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        def reach() -> None:
            if when(**kwargs):
                sys.stdout.write(f'{{"event": "step", "step": "{step}"}}\n')
                sys.stdout.flush()
                os.kill(os.getpid(), getattr(signal, sys.argv[7]))

        if not after:
            reach()
        result = function(*args, **kwargs)
        if after:
            reach()
        return result

    setattr(owner, name, wrapped)


def _is(state: str) -> Function:
    def is_so(**changes: Any) -> bool:
        pending = changes.get("pending", 0)
        if state == "cleared":
            return pending is None
        return bool(pending) and (pending.marks is None) == (state == "begun")

    return is_so


STEPS: Final[dict[str, tuple[Any, str, bool, Function]]] = {
    "before it begins": (Candidacy, "note_now", False, _is("begun")),
    "begun": (Candidacy, "note_now", True, _is("begun")),
    "made": (Rescaler, "_make", True, lambda **_: True),
    "before it is decided": (Candidacy, "note_now", False, _is("decided")),
    "decided": (Candidacy, "note_now", True, _is("decided")),
    "renamed": (pending_rescale, "_take", True, lambda **_: True),
    "before the exchange": (pending_rescale, "exchange", False, lambda **_: True),
    "exchanged": (pending_rescale, "exchange", True, lambda **_: True),
    "before the publication": (pending_rescale, "publish_successor", False, lambda **_: True),
    "published": (pending_rescale, "publish_successor", True, lambda **_: True),
    "before the record is cleared": (Candidacy, "note_now", False, _is("cleared")),
    "cleared": (Candidacy, "note_now", True, _is("cleared")),
}
_PUBLICATION: Final = ("before the publication", "published")
_EXCHANGE: Final = ("renamed", "before the exchange", "exchanged")
ON_DISK: Final = tuple(step for step in STEPS if step not in _PUBLICATION)
ELSEWHERE: Final = tuple(step for step in STEPS if step not in _EXCHANGE)


def main(script: str, home: str, address: str, lease_s: str, host: str, step: str, _signal: str) -> None:
    socket.gethostname = lambda: host
    Path(home).mkdir(parents=True, exist_ok=True)
    if step in STEPS:
        owner, name, after, when = STEPS[step]
        at(step, owner, name, after=after, when=when)
    leading = Leading.of(address, f"{lease_s}s", Path.cwd(), Path(home))
    assert leading is not None
    supervise(script, home, elections=elections(leading), machine=host)


if __name__ == "__main__":
    main(*sys.argv[1:])
