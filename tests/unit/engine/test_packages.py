"""What Ivy writes when packages cannot be fetched, as Spark 4.2 passed it on, and what becomes of it."""

from __future__ import annotations

import pytest

from holdfast.engine.session.jars import unresolved_error

REPORT = """\
:::: WARNINGS
{said}
\t\tmodule not found: no.such#thing;1.0
\t\t::          UNRESOLVED DEPENDENCIES         ::
\t\t:: no.such#thing;1.0: not found
\t\t:: also.none#other_2.13;2-M1: not found
Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: no.such#thing;1.0: not found, \
unresolved dependency: also.none#other_2.13;2-M1: not found]
\tat org.apache.spark.util.MavenUtils$.resolveMavenCoordinates(MavenUtils.scala:539)
"""
BOTH = "Spark could not fetch packages: no.such:thing:1.0, also.none:other_2.13:2-M1"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("", "not-found"),
        ("\tHost maven.example not found. url=https://maven.example/no/such/thing-1.0.pom", "unavailable"),
        ("You probably access the destination server through a proxy server that is not", "unavailable"),
        ("\tServer access error at url http://h/a.pom (java.net.ConnectException: refused)", "unavailable"),
        ("\tSERVER ERROR: Bad Gateway url=http://h/a.pom", "unavailable"),
    ],
)
def test_a_server_that_was_not_reached_may_come_back(said: str, kind: str) -> None:
    found = unresolved_error(REPORT.format(said=said))
    assert found is not None
    assert (found.kind, found.fact, found.where) == (kind, BOTH, "spark.jars.packages")
    assert found.hint is not None
    assert "spark.jars" in found.hint


def test_a_jar_that_could_not_be_downloaded_is_named_too() -> None:
    text = 'Exception in thread "main" java.lang.RuntimeException: [download failed: g.h#a-b;1.2!a-b.jar]'
    found = unresolved_error(text)
    assert found is not None
    assert found.fact == "Spark could not fetch packages: g.h:a-b:1.2"


def test_other_words_are_of_other_errors() -> None:
    assert unresolved_error("Error: Could not create the Java Virtual Machine.") is None
