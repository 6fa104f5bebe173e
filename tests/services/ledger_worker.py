"""Another process that owns a sink, for tests that freeze or kill it.

Arguments: address and the point to stop at: `claimed`, `unlocked` (in the
transaction, before its first statement), `written` (after it) or `none`. At that point it says so on
stdout and waits for a line on stdin. At the end it prints its outcome.
"""

from __future__ import annotations

import sys

from holdfast.errors import HoldfastError
from holdfast.stream.sinks.ledger import ledger


def say(word: str) -> None:
    """Tell the test, which reads line by line."""
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def main(address: str, stop_at: str) -> None:
    """Claim the sink `shop` and write batch 0 of query `q`: one row, the token."""

    def point(name: str) -> None:
        if name == stop_at:
            say(name)
            sys.stdin.readline()

    at = ledger(address)
    try:
        token = at.claim("shop", "worker")
        say(f"token {token}")
        point("claimed")
        with at.transaction("shop", "q", 0, token) as tx:
            point("unlocked")
            if tx is not None:
                tx.execute(f"INSERT INTO result (token) VALUES ({token})")
            point("written")
        say("skipped" if tx is None else "committed")
    except HoldfastError as error:
        say(error.kind)


if __name__ == "__main__":
    main(*sys.argv[1:])
