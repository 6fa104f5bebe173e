"""Whatever our own OpenAPI allows to be asked, and much that it does not, is answered as it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import schemathesis
from grid import WHOLE
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from served import Served

from holdfast.server.app import app

EXAMPLES = 200 if WHOLE else 2
HEADERS: Final = {"host": "127.0.0.1:8081"}
CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What is described, over a home with a job."""
    served = Served(tmp_path_factory.mktemp("api"))
    served.job(checkpoint=served.checkpoint())
    made = app(served.home.path, served.settings)
    return schemathesis.openapi.from_asgi("/api/v1/openapi.json", made, headers=HEADERS)


def test_every_answer_is_what_the_description_says(described: Any) -> None:
    asked = 0
    for each in described.get_all_operations():
        operation = each.ok()

        @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def answered(case: Any) -> None:
            case.call_and_validate(headers=HEADERS, checks=CHECKS)

        answered()
        asked += 1
    assert asked >= 20


def test_the_description_names_no_path_of_flinks(tmp_path: Path) -> None:
    described = Served(tmp_path).client().get("/api/v1/openapi.json").json()
    assert all(path.startswith("/api/v1/") for path in described["paths"])
    assert "422" not in str(described)
    for path in described["paths"].values():
        for operation in path.values():
            assert operation["summary"]
            assert operation["description"]
