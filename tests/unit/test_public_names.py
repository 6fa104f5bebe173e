from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import holdfast


def test_the_names_are_flat_sorted_and_all_there() -> None:
    assert holdfast.__all__ == sorted(holdfast.__all__)
    hidden = {"list", "map"}  # a star import would hide the builtins
    assert sorted({*holdfast._NAMES, *holdfast._MODULES} - hidden) == holdfast.__all__
    assert dir(holdfast) == sorted({*holdfast.__all__, *hidden})
    for name in dir(holdfast):
        found = getattr(holdfast, name)
        home = found.__name__ if isinstance(found, ModuleType) else found.__module__
        assert home.startswith("holdfast.")


def test_importing_the_package_loads_neither_spark_nor_arrow() -> None:
    program = (
        "import sys, holdfast\n"
        "holdfast.Checkpoint('c'); holdfast.exponential()\n"
        "print([name for name in ('pyspark', 'numpy', 'pyarrow', 'pandas', 'py4j') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
