"""The site of the documents: links lead somewhere, a search finds an error, nothing is fetched."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import website
from grid import WHOLE

ROOT = Path(__file__).parents[2]
FOREIGN = re.compile(
    r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"(?:https?:)?//[^\"]+", re.IGNORECASE
)


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return website.pages()


def test_every_document_is_a_page(pages: dict[str, str]) -> None:
    documents = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")}
    assert documents <= set(pages)
    assert {"index.md", "README.md", "SECURITY.md", "CHANGELOG.md"} <= set(pages)


def test_no_page_is_too_large_to_read(pages: dict[str, str]) -> None:
    sizes = {path: len(text.encode()) for path, text in pages.items()}
    assert max(sizes.values()) < 150_000, max(sizes, key=lambda path: sizes[path])


def test_each_error_of_spark_has_a_page(pages: dict[str, str]) -> None:
    guide = (ROOT / website.SPARK_ERRORS).read_text(encoding="utf-8")
    conditions = {name for case in website.spark_cases(guide) for name in case.conditions}
    assert len(conditions) > 25
    titles = {
        website.title(text).rpartition(".")[2]
        for path, text in pages.items()
        if path.startswith("docs/guides/spark-errors/")
    }
    assert conditions <= titles
    for path, text in pages.items():
        if path.startswith("docs/guides/spark-errors/"):
            assert "**Cause:**" in text
            assert "**What to do:**" in text
            assert "the same" not in text.partition("**What to do:**")[2].partition("\n")[0][:9]


def test_each_error_of_holdfast_has_a_heading(pages: dict[str, str]) -> None:
    codes = set(re.findall(r"`(HF-E\d+)`", (ROOT / website.ERRORS).read_text(encoding="utf-8")))
    assert len(codes) > 900
    headings = {
        code
        for path, text in pages.items()
        if path.startswith("docs/reference/errors-")
        for code in re.findall(r"^#+ (HF-E\d+)$", text, re.MULTILINE)
    }
    assert codes == headings


def test_a_link_into_a_large_page_leads_to_its_section(pages: dict[str, str]) -> None:
    assert "](../../docs/reference/json-commands.md#holdfast-watch)" in pages["docs/guides/checkpoints.md"]
    assert "json-objects-in-the-output.md#advice)" in pages["docs/reference/json-commands.md"]


def test_every_link_leads_to_a_file_of_the_site(pages: dict[str, str], tmp_path: Path) -> None:
    website.stage(tmp_path, pages)
    links = [
        (path, target)
        for path, text in pages.items()
        for target in re.findall(r"\]\(([^)#\s]+)", text)
        if "://" not in target and not target.startswith("mailto:")
    ]
    assert len(links) > 1000
    gone = [
        (path, target) for path, target in links if not (tmp_path / path).parent.joinpath(target).is_file()
    ]
    assert gone == []


# Of the libraries that build it.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")
def test_a_small_site_is_built_and_a_broken_link_is_an_error(tmp_path: Path) -> None:
    text = {
        "index.md": "# Start\n\n```{toctree}\n\ndocs/a\n```\n\n[a](docs/a.md#b)\n",
        "docs/a.md": "# A\n\n## B\n\n[start](../index.md)\n",
    }
    assert website.build(tmp_path / "site", text) == []
    assert not any(FOREIGN.findall(page.read_text("utf-8")) for page in (tmp_path / "site").rglob("*.html"))
    text["docs/a.md"] += "[nothing](../gone.md) [no heading](../index.md#gone)\n"
    warnings = website.build(tmp_path / "site", text)
    assert len(warnings) == 2
    assert all("gone" in warning for warning in warnings)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")
def test_the_whole_site(tmp_path: Path) -> None:
    # Furo writes the whole navigation anew on each page: without it the short form takes less time.
    assert website.build(tmp_path / "site", theme="furo" if WHOLE else "basic") == []
    built = list((tmp_path / "site").rglob("*.html"))
    assert len(built) > 150
    for page in built:
        assert not FOREIGN.findall(page.read_text("utf-8")), page
    index = (tmp_path / "site" / "searchindex.js").read_text(encoding="utf-8")
    # Entries of the index come first in the results of a search.
    entries = index.partition('"indexentries":{')[2].partition("}")[0]
    assert '"cannot_load_state_store"' in entries
    assert '"hf-e2001"' in entries
