"""The Python reference: each public name is on the page, with an example that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import python_catalogue
import reference_examples
from grid import one_in

import holdfast as hf


def test_every_public_name_is_in_one_group() -> None:
    names = [name for names in python_catalogue.groups().values() for name in names]
    assert sorted(names) == dir(hf)


@pytest.mark.parametrize(
    "public", [public for _, public in python_catalogue.public_names()], ids=lambda it: it.name
)
def test_every_public_name_says_what_it_is(public: Any) -> None:
    assert public.docstring.strip()


@pytest.mark.parametrize(
    "public", one_in(4, reference_examples.examples(with_spark=False)), ids=lambda it: it.name
)
def test_an_example_without_spark_runs(public: Any, tmp_path: Path) -> None:
    assert public.example, f"{public.name} has no example"
    with reference_examples.example_folder(tmp_path / "shop"):
        reference_examples.run(public.example)
