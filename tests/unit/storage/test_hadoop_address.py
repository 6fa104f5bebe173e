"""The address that Spark is told, by what a NameNode says of itself over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import pytest

from holdfast.errors import Unavailable
from holdfast.storage.remote import hadoop_address

NameNode = Callable[[dict[str, str]], str]


@pytest.fixture
def namenode() -> Iterator[NameNode]:
    """A server with the settings' page of a NameNode that is set up so; its address over HTTP."""
    with ExitStack() as stack:

        def start(settings: dict[str, str]) -> str:
            class Page(BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    page = urlsplit(self.path)
                    assert (page.path, self.headers["Accept"]) == ("/conf", "application/json")
                    (name,) = parse_qs(page.query)["name"]
                    if name not in settings:
                        self.send_error(404, f"Property {name} not found")
                        return
                    body = json.dumps({"property": {"key": name, "value": settings[name]}}).encode()
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

                def log_message(self, *_: object) -> None:
                    """Nothing is said."""

            server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
            stack.callback(server.server_close)
            thread = Thread(target=server.serve_forever)
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return f"webhdfs://127.0.0.1:{server.server_port}"

        yield start


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("file:///data/visits", "file:/data/visits"),
        ("s3a://bucket/visits", "s3a://bucket/visits"),
        ("hdfs://nn:8020/visits", "hdfs://nn:8020/visits"),
    ],
)
def test_nobody_is_asked_where_the_address_tells(uri: str, address: str) -> None:
    assert hadoop_address(uri) == address


def test_a_namenode_alone_is_its_own_default(namenode: NameNode) -> None:
    web = namenode({"fs.defaultFS": "hdfs://nn1:8020"})
    assert hadoop_address(f"{web}/jobs/visits") == "hdfs://nn1:8020/jobs/visits"


def test_one_of_several_has_the_name_of_all(namenode: NameNode) -> None:
    settings = {"fs.defaultFS": "hdfs://nn1:8020", "dfs.ha.namenode.id": "nn1", "dfs.nameservice.id": "prod"}
    assert hadoop_address(f"{namenode(settings)}/jobs/visits") == "hdfs://prod/jobs/visits"


@pytest.mark.parametrize(
    "settings",
    [{}, {"fs.defaultFS": "viewfs://all"}, {"fs.defaultFS": "hdfs://"}, {"dfs.ha.namenode.id": "nn1"}],
)
def test_what_does_not_say_it_is_refused(namenode: NameNode, settings: dict[str, str]) -> None:
    with pytest.raises(Unavailable, match="does not report its RPC address"):
        hadoop_address(f"{namenode(settings)}/visits")


def test_what_does_not_answer_is_refused() -> None:
    with pytest.raises(Unavailable, match="configuration cannot be read"):
        hadoop_address("webhdfs://127.0.0.1:1/visits")
