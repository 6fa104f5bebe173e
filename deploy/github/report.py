"""Report the findings of the GitHub Action: the summary of the run, the comment, and the exit code.

It reads the SARIF document of `holdfast lint`, and the output of `holdfast check` if there is a job. One
comment of a pull request is kept up to date. Exit code 1: lint found an error, or the job would not keep all
its state.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

MARK: Final = "<!-- holdfast -->"
VERDICTS: Final = {
    "kept": "keeps all state",
    "loses": "would lose or reinterpret state",
    "fails": "would not start",
}
_LIMIT: Final = 60_000  # characters; GitHub accepts 65,536 in a comment
_ROWS: Final = 50


def findings(sarif: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return level, location, rule and text of each finding that no comment in the code suppresses."""
    found = []
    for result in sarif["runs"][0]["results"]:
        if "suppressions" not in result:
            [location] = result["locations"]
            physical = location["physicalLocation"]
            line = physical.get("region", {}).get("startLine", 1)
            place = f"{physical['artifactLocation']['uri']}:{line}"
            found.append((result["level"], place, result["ruleId"], result["message"]["text"]))
    return found


def report(found: list[tuple[str, str, str, str]], job: str, against: str, verdict: str, output: str) -> str:
    """Return the report as Markdown."""
    lines = [MARK, "### Holdfast", ""]
    if verdict:
        lines += [
            f"**{_code(job)} {VERDICTS[verdict]}**, checked against {_code(against)}.",
            "",
            *_fenced(output),
            "",
        ]
    errors = sum(level == "error" for level, *_ in found)
    lines.append(f"`holdfast lint`: {len(found)} findings, {errors} of them errors.")
    if found:
        lines += ["", "| | Where | Rule | Finding |", "|---|---|---|---|"]
        lines += [
            f"| {level} | {_code(place)} | {rule} | {_cell(text)} |"
            for level, place, rule, text in found[:_ROWS]
        ]
    if len(found) > _ROWS:
        lines += ["", f"{len(found) - _ROWS} more findings are in the SARIF document."]
    return "\n".join(lines)


def _code(text: str) -> str:
    """Return text as code that ends neither its line, its cell nor itself."""
    return "`" + text.replace("`", "'").replace("|", "/").replace("\n", " ") + "`"


def _cell(text: str) -> str:
    """Return text for a cell of a table; code in it stays code, and nothing else is markup."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").replace("@", "@&#8203;").split())


def _fenced(text: str) -> list[str]:
    fence = "`" * 3
    while fence in text:
        fence += "`"
    return [fence, text[: _LIMIT // 2].rstrip(), fence]


def comment(text: str, environ: Mapping[str, str]) -> str | None:
    """Write the comment of a pull request, or replace its former one; return its address.

    Returns None if the run is not for a pull request, or if the token may not comment, as in one from a fork.
    """
    event = json.loads(Path(environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    if "pull_request" not in event:
        return None
    api = f"{environ['GITHUB_API_URL']}/repos/{environ['GITHUB_REPOSITORY']}/issues"
    comments = f"{api}/{event['pull_request']['number']}/comments"
    try:
        address = next(
            (each["url"] for each in _all(comments, environ) if each["body"].startswith(MARK)), None
        )
        method, address = ("POST", comments) if address is None else ("PATCH", address)
        return str(_ask(method, address, environ, {"body": text[:_LIMIT]})["html_url"])
    except HTTPError as error:
        if error.code in {401, 403}:
            print(f"::warning title=Holdfast::no comment: the token may not write one ({error.code})")
            return None
        raise


def _all(comments: str, environ: Mapping[str, str]) -> list[Any]:
    found: list[Any] = []
    page = 1
    while True:
        batch = _ask("GET", f"{comments}?per_page=100&page={page}", environ)
        found += batch
        if len(batch) < 100:
            return found
        page += 1


def _ask(method: str, address: str, environ: Mapping[str, str], body: object = None) -> Any:
    request = Request(  # noqa: S310 - GitHub's API, which the runner names
        address,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "authorization": f"Bearer {environ['GITHUB_TOKEN']}",
            "accept": "application/vnd.github+json",
            "content-type": "application/json",
        },
    )
    with urlopen(request, timeout=30) as answer:  # noqa: S310 - as above
        return json.load(answer)


def main(environ: Mapping[str, str]) -> int:
    """Report, and return the exit code."""
    found = findings(json.loads(Path(environ["SARIF"]).read_text(encoding="utf-8")))
    verdict = environ.get("VERDICT", "")
    output = Path(environ["RUNNER_TEMP"], "holdfast-check.txt").read_text(encoding="utf-8") if verdict else ""
    text = report(found, environ.get("JOB", ""), environ.get("AGAINST", ""), verdict, output)
    with Path(environ["GITHUB_STEP_SUMMARY"]).open("a", encoding="utf-8") as summary:
        summary.write(f"{text}\n")
    if environ.get("COMMENT") == "true":
        comment(text, environ)
    errors = any(level == "error" for level, *_ in found)
    return int(errors or verdict not in {"", "kept"})


if __name__ == "__main__":
    sys.exit(main(os.environ))
