"""The images of the guides, made anew by tests that run on request."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

IMAGES = Path(__file__).parents[2] / "docs" / "images"
PATIENCE_MS = 60_000
_SCREENSHOTS = "HOLDFAST_SCREENSHOTS"
on_request = pytest.mark.skipif(
    _SCREENSHOTS not in os.environ, reason=f"{_SCREENSHOTS}=1 makes the images of the guide anew"
)
# What stands in one directory is shown as if it stood in another.
ELSEWHERE = """
([from, to]) => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode;
    text.textContent = text.textContent.replaceAll(from, to);
  }
}
"""


def photograph(
    browser: Browser, address: str, folder: Path, file: str, scheme: Any, size: tuple[int, int]
) -> None:
    """Make an image of the guide anew."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("[data-theme-switch]:not([hidden])")
    page.evaluate(ELSEWHERE, [str(folder), "/srv/streams"])
    image = IMAGES / f"dashboard-{file}.png"
    page.screenshot(path=image)
    assert image.stat().st_size < 150_000
    context.close()
