"""A place where the system makes no directories."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from holdfast.errors import Invalid
from holdfast.storage.local import LocalStorage


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it is Linux that has /proc")
def test_a_directory_below_proc_cannot_be_made() -> None:
    with pytest.raises(Invalid, match="the directory cannot be created") as caught:
        LocalStorage(Path("/proc/nothing/x")).write("metadata", b"{}")
    assert caught.value.where == "/proc/nothing"
    assert caught.value.hint is not None
