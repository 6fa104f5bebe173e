"""A runner of GitHub's, as far as the action of this repository sees it: its steps, and GitHub's API.

The API is a server of the test, which keeps comments as GitHub does; the steps are run by bash.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
ACTION: Final[dict[str, Any]] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS: Final[dict[str, dict[str, Any]]] = {step["name"]: step for step in ACTION["runs"]["steps"]}
_EXPRESSION: Final = re.compile(r"\$\{\{ *(.*?) *\}\}")


class Comments(ThreadingHTTPServer):
    """The comments of one pull request, behind the four calls of GitHub's API that a comment takes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[str] = ["a comment of a person"]
        self.refused = False
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Comments

    def do_GET(self) -> None:
        assert self.path == "/repos/shop/jobs/issues/7/comments?per_page=100&page=1"
        self._answer([self._comment(number) for number in range(len(self.server.bodies))])

    def do_POST(self) -> None:
        assert self.path == "/repos/shop/jobs/issues/7/comments"
        self.server.bodies.append(self._body())
        self._answer(self._comment(len(self.server.bodies) - 1))

    def do_PATCH(self) -> None:
        number = int(self.path.rpartition("/")[2])
        self.server.bodies[number] = self._body()
        self._answer(self._comment(number))

    def _comment(self, number: int) -> dict[str, str]:
        url = f"{self.server.url}/repos/shop/jobs/issues/comments/{number}"
        return {"url": url, "html_url": url, "body": self.server.bodies[number]}

    def _body(self) -> str:
        return str(json.loads(self.rfile.read(int(self.headers["content-length"])))["body"])

    def _answer(self, document: object) -> None:
        allowed = self.headers["authorization"] == "Bearer of-the-run" and not self.server.refused
        self.send_response(200 if allowed else 403)
        self.end_headers()
        self.wfile.write(json.dumps(document if allowed else {}).encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class Runner:
    """A run of the action for a pull request: what a runner sets, and the outputs of the steps so far."""

    def __init__(self, folder: Path, api: str) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.temp = folder / "temp"
        self.temp.mkdir()
        (folder / "event.json").write_text(json.dumps({"pull_request": {"number": 7}}))
        self.summary = folder / "summary.md"
        self.output = folder / "output"
        self.values = {
            f"inputs.{name}": str(told.get("default", "")) for name, told in ACTION["inputs"].items()
        } | {"inputs.token": "of-the-run", "steps.check.outputs.verdict": ""}
        self.environ = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_API_URL": api,
            "GITHUB_EVENT_PATH": str(folder / "event.json"),
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_PATH": str(folder / "path"),
            "GITHUB_REPOSITORY": "shop/jobs",
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "RUNNER_TEMP": str(self.temp),
        }

    def run(self, name: str, **inputs: str) -> subprocess.CompletedProcess[str]:
        step = STEPS[name]
        self.values |= {f"inputs.{each}": value for each, value in inputs.items()}
        given = {
            key: _EXPRESSION.sub(lambda found: self.values[found[1]], value)
            for key, value in step.get("env", {}).items()
        }
        self.output.write_text("")
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.workspace,
            env={**self.environ, **given},
            capture_output=True,
            text=True,
            check=False,
        )
        for line in self.output.read_text().splitlines():
            key, _, value = line.partition("=")
            self.values[f"steps.{step['id']}.outputs.{key}"] = value
        return done
