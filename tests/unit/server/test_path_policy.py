"""Which directories a request may name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from cli_runner import cli_in
from served import AGGREGATE, SHOP, Served

from golden import golden_on_disk
from holdfast import layout
from holdfast.errors import Invalid
from holdfast.jobs.registry.operation_log import Operations
from holdfast.server.access import path_policy
from holdfast.server.control_plane import ControlPlane
from holdfast.server.server_settings import ServerSettings

API = "/api/v1"


@pytest.fixture
def home(tmp_path: Path) -> Served:
    """A person's home: a checkpoint lies in it, beside what is nobody's business."""
    made = Served(tmp_path / "ann")
    made.settings = ServerSettings()
    for private in (".ssh", "visits-of-patients", "visits.d", "visits.savepoints.d"):
        (made.folder / private).mkdir()
    (made.folder / "link.savepoints").symlink_to(made.folder / ".ssh")
    made.job(checkpoint=made.folder / "visits")
    return made


def plane(made: Served) -> ControlPlane:
    return ControlPlane(made.home, made.settings, lambda: 0)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".ssh",
        ".ssh/id_rsa",
        "visits-of-patients",
        "visits.d",
        "visit",
        "visitsavepoints",
        "other",
        "visits-forks",
    ],
)
@pytest.mark.slow
def test_a_checkpoint_in_a_home_does_not_open_the_home(home: Served, name: str) -> None:
    with pytest.raises(Invalid, match="the directory is not allowed"):
        path_policy.resolve(plane(home), str(home.folder / name), "catalog")
    answer = home.client().get(f"{API}/savepoints", params={"catalog": str(home.folder / name)})
    assert answer.status_code == 400
    body = {"catalog": str(home.folder / name)}
    home.client().post(f"{API}/jobs/shop/savepoints", json=body)
    home.client().post(f"/jobs/{SHOP}/savepoints", json={"target-directory": body["catalog"]})
    assert Operations(home.home).newest() == []


@pytest.mark.parametrize(
    "name",
    [
        "visits",
        "visits/state/0",
        "visits.savepoints",
        "visits.savepoints/savepoints/x",
        "visits.savepoints-2",
        "visits-fork",
        "visits-fork.b",
        "visits-restored",
        "home/savepoints",
    ],
)
def test_what_belongs_to_a_checkpoint_may_be_named(home: Served, name: str) -> None:
    address = home.folder / name
    assert path_policy.resolve(plane(home), str(address), "catalog") == f"file://{address}"


def test_a_link_beside_a_checkpoint_leads_nowhere_else(home: Served) -> None:
    (home.folder / "visits.savepoints").symlink_to(home.folder / ".ssh")
    for name in ("visits.savepoints", "link.savepoints"):
        with pytest.raises(Invalid, match="the directory is not allowed"):
            path_policy.resolve(plane(home), str(home.folder / name), "catalog")


def test_a_new_checkpoint_may_lie_where_the_dashboard_proposes_it(home: Served) -> None:
    proposed = home.client().get("/ui/jobs/shop/savepoints.json").json()["beside"]
    assert proposed == f"file://{home.folder}/visits-fork"
    assert path_policy.new_checkpoint(plane(home), proposed, "checkpoint") == proposed
    with pytest.raises(Invalid, match="the directory is not allowed"):
        path_policy.new_checkpoint(plane(home), str(home.folder / "elsewhere"), "checkpoint")


def test_savepoints_of_which_nobody_has_said_where_go_beside_the_checkpoint(home: Served) -> None:
    with home.supervised():
        answer = home.client().post(f"/jobs/{SHOP}/savepoints", json={})
    assert answer.status_code == 202
    [asked] = Operations(home.home).newest()
    assert asked.arguments["catalog"] == f"file://{home.folder}/visits.savepoints"


def test_a_checkpoint_that_is_a_whole_bucket_needs_a_directory_for_savepoints(home: Served) -> None:
    made = plane(home)
    details = made.details("shop")
    job = replace(details.status.job, checkpoint="s3a://bucket/")
    details = replace(details, status=replace(details.status, job=job))
    with pytest.raises(Invalid, match="no default savepoint directory for this job") as caught:
        path_policy.catalog_of(made, details, None, "catalog")
    assert "--savepoint-dir DIR" in str(caught.value)


def test_a_directory_that_has_savepoints_of_a_job_may_be_used_again(home: Served) -> None:
    catalog = home.folder / "moved"
    with pytest.raises(Invalid, match="the directory is not allowed"):
        path_policy.resolve(plane(home), str(catalog), "catalog")
    home.savepoint(f"file://{catalog}/savepoints/20260101-000000-abc", 3)
    assert path_policy.resolve(plane(home), str(catalog), "catalog") == f"file://{catalog}"
    made = plane(home)
    assert path_policy.catalog_of(made, made.details("shop"), None, "catalog") == f"file://{catalog}"


def test_a_directory_that_a_command_has_put_a_savepoint_of_a_job_into_may_be_used(tmp_path: Path) -> None:
    served = Served(tmp_path, ServerSettings(roots=(f"file://{tmp_path / 'allowed'}",)))
    served.job(checkpoint=served.checkpoint())
    for taken, directory in (
        ("checkpoints/aggregate-changelog", "mine"),
        (golden_on_disk(AGGREGATE, tmp_path / "copy"), "another"),
    ):
        holdfast = cli_in(tmp_path, served.home.path)
        assert holdfast("savepoint", "take", str(taken), directory, "--no-digest").returncode == 0
    ask = served.client().post
    with served.supervised():
        mine = ask(f"/jobs/{SHOP}/savepoints", json={"target-directory": str(tmp_path / "mine")})
        other = ask(f"/jobs/{SHOP}/savepoints", json={"target-directory": str(tmp_path / "another")})
    assert (mine.status_code, other.status_code) == (202, 400)
    [told] = other.json()["errors"]
    checkpoint = tmp_path / "checkpoints" / "aggregate-changelog"
    allowed = f"{checkpoint}.savepoints or {tmp_path / 'allowed'} or {tmp_path / 'home' / 'savepoints'}"
    assert f"found {tmp_path / 'another'}, expected a directory at or below {allowed}" in told
    assert f"`--root {tmp_path / 'another'}`" in told


@pytest.mark.parametrize(
    ("checkpoint", "beside"),
    [
        ("file:///data/visits", "file:///data/visits.savepoints"),
        ("file:///visits", "file:///visits.savepoints"),
        ("s3://bucket/visits/", "s3://bucket/visits.savepoints"),
        ("s3://bucket", None),  # another bucket
        ("s3://bucket/", None),
    ],
)
def test_what_is_beside_a_checkpoint(checkpoint: str, beside: str | None) -> None:
    assert layout.beside(checkpoint, layout.SAVEPOINTS_BESIDE) == beside
