"""How many requests a take, a verification and a restore send to S3, counted by a real server.

The table of the guide has these numbers; what a request more or less would cost shows there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from s3_gateway import Gateway

from golden import golden_files, without_checksums
from holdfast import checkpoints, savepoints
from holdfast.storage import open_storage

pytestmark = pytest.mark.services

NAME = "4.2/state-format2"
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "object-storage.md"
KINDS = {"PutObject": "PUT", "CopyObject": "COPY", "ListObjectsV2": "LIST"}
KINDS |= {"GetObject": "GET", "HeadObject": "HEAD", "DeleteObject": "DELETE"}
ORDER = ("PUT", "COPY", "LIST", "GET", "HEAD", "DELETE")


def test_the_requests_of_verbs_are_those_of_the_guide(s3_gateway: Gateway) -> None:
    uri = s3_gateway.bucket()
    bucket = uri.removeprefix("s3://")
    source, catalog = f"{uri}/ck", f"{uri}/sp"
    storage = open_storage(source)
    for path, data in without_checksums(golden_files(NAME)).items():
        storage.write(path, data)
    rows: dict[str, Counter[str]] = {}

    def counted(verb: str, run: Callable[[], object]) -> None:
        before = len(s3_gateway.requests(bucket))
        run()
        asked = s3_gateway.requests(bucket)[before:]
        rows[verb] = Counter(KINDS[request.verb] for request in asked)

    counted("`checkpoint verify`", lambda: checkpoints.verify(source))
    counted("`savepoint take`, the first", lambda: savepoints.take(source, catalog))
    counted("`savepoint take`, nothing new", lambda: savepoints.take(source, catalog))
    newest = savepoints.list(catalog)[-1]
    taken = f"{catalog}/{newest.savepoint_id}"
    counted("`savepoint verify`", lambda: savepoints.verify(taken))
    counted("`restore`", lambda: savepoints.restore(taken, f"{uri}/back"))
    told = {}
    for match in re.finditer(r"^\| (`[^|]+) \| ([\d| ]+) \|$", GUIDE.read_text(), re.MULTILINE):
        numbers = [int(number) for number in match[2].split("|")]
        told[match[1]] = Counter(dict(zip(ORDER, numbers, strict=True)))
    assert rows == told, "\n".join(
        f"| {verb} | {' | '.join(str(counts[kind]) for kind in ORDER)} |" for verb, counts in rows.items()
    )
