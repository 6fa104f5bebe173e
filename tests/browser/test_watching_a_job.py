"""What somebody on call does with the dashboard, in a real browser, with a job that really runs."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command import PROGRAM
from photographs import on_request, photograph

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from conftest import Heard, Shop

pytestmark = pytest.mark.browser


def test_a_day_on_call(shop: Shop, page: Page, heard: Heard) -> None:
    from playwright.sync_api import expect

    expect.set_options(timeout=60_000)
    page.goto(shop.url)
    shop.arrive("anna", "ben", second=1)

    # The job turns up, runs and commits, without anybody pressing a key.
    row = page.get_by_role("row", name=re.compile("coffee-shop"))
    expect(row).to_contain_text("Running")
    expect(row.locator("td[data-label=Batch]")).to_have_text(re.compile(r"\d"))
    row.get_by_role("link", name="coffee-shop").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("coffee-shop")
    shop.arrive("anna", second=2)
    rows = page.locator("#batches tbody tr")
    expect(rows.nth(1)).to_be_visible()
    expect(page.locator(".stats")).to_contain_text("Committed batch")

    _savepoints(shop, page)
    _state(shop, page)
    _alert(shop, page)

    # And it is stopped from the page too.
    page.goto(f"{shop.url}/ui/jobs/coffee-shop")
    page.get_by_role("button", name="Stop…").click()
    page.get_by_role("button", name="Stop after this batch").click()
    expect(page.locator("#head")).to_contain_text(re.compile("Finished|Ending|Running"))
    assert shop.ended() == 0
    assert [word for word in heard.words if "Failed to" not in word and "ERR_" not in word] == []
    assert all(address.startswith((shop.url, "data:")) for address in heard.addresses)


@on_request
def test_screenshots_of_a_running_job(browser: Browser, page: Page, shop: Shop) -> None:
    """Two minutes of the shop's day, with a driver that is killed and two savepoints."""
    rng = random.Random(7)
    names = ["anna", "ben", "cleo", "dan", "eve", "fay", "gus", "hana"]
    checkpoint = "checkpoints/coffee-shop"
    for second in range(1, 121):
        committed = len(shop.heard("batch"))
        shop.arrive(*rng.choices(names, k=rng.randrange(2, 9)), second=second)
        while len(shop.heard("batch")) == committed:
            page.wait_for_timeout(50)
        if second == 50:
            os.killpg(int(shop.heard("starting")[-1]["pid"]), signal.SIGKILL)
        if second in (80, 110):
            label = "before the upgrade" if second == 80 else "nightly"
            take = [PROGRAM, "savepoint", "take", checkpoint, f"{checkpoint}.savepoints", "--label", label]
            subprocess.run([*take, "--home", "home"], cwd=shop.folder, check=True, capture_output=True)
    job = f"{shop.url}/ui/jobs/coffee-shop"
    page.goto(f"{shop.url}/ui/alerts")
    for _ in range(200):
        if page.get_by_role("region", name="Open alerts").count():
            break
        shop.arrive("ben", second=120)
        page.wait_for_timeout(500)
    photograph(browser, f"{shop.url}/ui/alerts", shop.folder, "alerts", "dark", (1200, 620))
    photograph(browser, job, shop.folder, "job", "light", (1200, 860))
    photograph(browser, job, shop.folder, "job-dark", "dark", (1200, 860))
    photograph(browser, f"{job}/savepoints", shop.folder, "savepoints", "light", (1200, 620))
    photograph(browser, f"{job}/state?key=anna", shop.folder, "key", "light", (1200, 820))


def _savepoints(shop: Shop, page: Page) -> None:
    from playwright.sync_api import expect

    page.get_by_role("link", name="Savepoints").click()
    expect(page.get_by_text("This job has no savepoints")).to_be_visible()
    page.get_by_role("button", name="Take a savepoint…").click()
    page.locator("#take").get_by_label("Label").fill("before lunch")
    page.get_by_role("button", name="Take it").click()
    table = page.locator("#savepoints-1")
    expect(table).to_contain_text("before lunch")
    expect(page.locator("#asked")).to_contain_text("taken: batch")

    table.get_by_role("button", name="Verify").click()
    expect(page.locator("#savepoints-1")).to_contain_text("Whole")

    page.locator("#savepoints-1").get_by_role("button", name="Fork…").click()
    fork = page.locator("form:popover-open")
    fork.get_by_label("New checkpoint").fill(f"{shop.folder}/checkpoints/coffee-shop-fork")
    fork.get_by_role("button", name="Fork", exact=True).click()
    expect(page.locator("#asked")).to_contain_text("checkpoint created")
    forked = shop.folder / "checkpoints" / "coffee-shop-fork"
    assert (forked / "metadata").is_file()
    assert _query_id(forked) != _query_id(shop.folder / "checkpoints" / "coffee-shop")


def _state(shop: Shop, page: Page) -> None:
    from playwright.sync_api import expect

    page.get_by_role("link", name="State", exact=True).click()
    expect(page.get_by_role("searchbox", name="Key")).to_be_visible()
    expect(page.get_by_role("button", name="Light or dark")).to_be_visible()  # so the keys are listened to
    page.keyboard.press("/")
    page.keyboard.type("anna")
    page.keyboard.press("Enter")
    value = page.locator("#found dl.value")
    expect(value).to_contain_text("count")
    # She came twice, for 350 each time.
    found = page.request.get(page.url.replace("/state?", "/state.json?")).json()["found"]
    assert list(found["value"].values()) == [2, 700]
    history = page.locator("#history li")
    expect(history).to_have_count(2)
    shop.arrive("anna", second=3)
    expect(history).to_have_count(3)
    expect(history.first).to_contain_text("1050")


def _alert(shop: Shop, page: Page) -> None:
    """Rows that come in while the watermark stands still are a fault; when it moves on, it is over."""
    from playwright.sync_api import expect

    page.goto(f"{shop.url}/ui/alerts")
    standing = page.get_by_role("region", name="Open alerts")
    calm = page.get_by_text("No open alerts")
    expect(calm).to_be_visible()
    for _ in range(200):
        if standing.count():
            break
        shop.arrive("ben", second=3)
        page.wait_for_timeout(500)
    expect(standing).to_contain_text("the watermark of query visits has not moved")
    expect(page.locator("nav .badge")).to_have_text("1")
    for second in range(30, 60):
        if calm.count():
            break
        shop.arrive("cleo", second=second)
        page.wait_for_timeout(1000)
    expect(calm).to_be_visible()
    expect(page.locator("nav .badge")).to_have_count(0)
    expect(page.locator("#body li.cleared").first).to_contain_text("ended:")


def _query_id(checkpoint: Path) -> str:
    return (checkpoint / "metadata").read_text()
