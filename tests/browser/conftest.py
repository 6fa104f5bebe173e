"""A browser for all of these tests, and a job that they watch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from command import PROGRAM
from required import require
from small_session import small_session

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

JOB = Path(__file__).parent / "jobs" / "visits.py"
PATIENCE_MS = 60_000
_PATIENCE_S = 120.0
_CONF = small_session()


# Until it is closed, an event loop runs in this thread, and no later test can start one of its own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The browser of a file's tests."""
    chromium = str(require("chromium"))
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=arguments)
        yield started
        started.close()


@dataclass
class Heard:
    """What a page has said and loaded.

    Attributes:
        words: What stands on its console, and errors that nobody has caught.
        addresses: What it has asked for.
    """

    words: list[str] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)

    def listen(self, page: Page) -> None:
        """Begin."""
        page.on("console", lambda message: self.words.append(message.text))
        page.on("pageerror", lambda error: self.words.append(str(error)))
        page.on("request", lambda request: self.addresses.append(request.url))


@pytest.fixture
def heard() -> Heard:
    """What the pages of a test say and load."""
    return Heard()


@pytest.fixture
def page(browser: Browser, heard: Heard) -> Iterator[Page]:
    """A window of the test's own, on a desk."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    opened = context.new_page()
    heard.listen(opened)
    yield opened
    context.close()


class Shop:
    """A job that runs, with its control plane.

    Attributes:
        url: Where its dashboard is.
        folder: Where it works.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[dict[str, Any]] = []
        self._files = 0
        (folder / "arrivals").mkdir()
        command = [
            PROGRAM,
            "run",
            str(JOB),
            "--master",
            "local[2]",
            "--home",
            "home",
            "--json",
            "--port",
            "0",
        ]
        for key, value in _CONF.items():
            command += ["--conf", f"{key}={value}"]
        self._process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._serves = threading.Event()
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()
        assert self._serves.wait(_PATIENCE_S), self.events
        self.url = str(next(each["url"] for each in self.events if "url" in each))

    def arrive(self, *customers: str, second: int) -> None:
        """Let customers come at a second of the shop's day: a file, and so a batch of its own."""
        self._files += 1
        lines = [
            json.dumps(
                {"customer": each, "cents": 350, "ts": f"2026-03-05T08:{second // 60:02}:{second % 60:02}Z"}
            )
            for each in customers
        ]
        fresh = self.folder / f"arrivals-{self._files}.json"
        fresh.write_text("\n".join(lines) + "\n")
        fresh.rename(self.folder / "arrivals" / f"{self._files:04}.json")

    def heard(self, kind: str) -> list[dict[str, Any]]:
        """Its events of a kind so far."""
        return [each for each in list(self.events) if each.get("event") == kind]

    def ended(self) -> int:
        """Wait for its end."""
        return self._process.wait(_PATIENCE_S)

    def close(self) -> None:
        """End what is left of it, drivers included."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for each in self.events:
            if each.get("event") == "starting":
                with suppress(ProcessLookupError):
                    os.killpg(int(each["pid"]), signal.SIGKILL)
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.events.append(json.loads(line))
            if "url" in self.events[-1]:
                self._serves.set()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A coffee shop that is open."""
    opened = Shop(tmp_path)
    yield opened
    opened.close()
