from __future__ import annotations

import pickle

import pytest

from holdfast import errors


def test_a_message_is_fact_place_difference_and_hint() -> None:
    error = errors.Conflict(
        "state schema of operator 0 does not match batch 41",
        where="state/0/_stateSchema",
        found="`count INT`",
        expected="`count BIGINT`",
        hint="see `holdfast check`",
    )
    assert str(error) == (
        "state schema of operator 0 does not match batch 41\n"
        "  in state/0/_stateSchema\n"
        "  found `count INT`, expected `count BIGINT`\n"
        "hint: see `holdfast check`"
    )


@pytest.mark.parametrize(
    ("kind", "exit_code", "http"),
    [
        ("invalid", 2, 400),
        ("not-found", 3, 404),
        ("conflict", 4, 409),
        ("unavailable", 5, 503),
        ("corrupt", 6, 500),
        ("unsupported", 7, 501),
        ("failed", 1, 500),
        ("internal", 70, 500),
    ],
)
def test_each_kind_says_what_the_caller_does(kind: str, exit_code: int, http: int) -> None:
    error = errors.BY_KIND[kind]("fact")
    assert (error.kind, error.exit_code, error.http_status) == (kind, exit_code, http)


@pytest.mark.parametrize("kind", sorted(errors.BY_KIND))
def test_an_error_survives_pickling_with_its_facts(kind: str) -> None:
    error = errors.BY_KIND[kind]("fact", where="there", found="a", expected="b", hint="c")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert again.as_dict() == error.as_dict()


def test_the_tree_on_top_of_the_module_is_complete() -> None:
    assert errors.__doc__ is not None
    for each in errors.BY_KIND.values():
        assert f"{each.__name__} " in errors.__doc__
        assert f"exit {each.exit_code}" in errors.__doc__
