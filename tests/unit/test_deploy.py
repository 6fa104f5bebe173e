"""What `deploy/` has: manifests that Kubernetes takes, and that say of Holdfast what is so.

The schemas are Kubernetes' own and those of the operators: `tests/golden/kubernetes/make.py`. The chart is
tried as Helm has rendered it: `tests/golden/helm/render.py`.
"""

from __future__ import annotations

import json
import lzma
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from command import Holdfast

from holdfast import errors
from holdfast._version import __version__
from holdfast.observe.prometheus import MetricsServer

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = ROOT / "tests" / "golden" / "helm"
RENDERED = sorted(CHART.glob("*.yaml"))
MANIFESTS = [*sorted((DEPLOY / "kubernetes").glob("*.yaml")), *RENDERED]
POD_TEMPLATE = "io.k8s.api.core.v1.PodTemplateSpec"

Document = dict[str, Any]

sys.path += [str(DEPLOY / "image"), str(CHART)]
import locked  # noqa: E402
import render  # noqa: E402


@cache
def schemas() -> Document:
    packed = (ROOT / "tests" / "golden" / "kubernetes" / "schemas.json.xz").read_bytes()
    return dict(json.loads(lzma.decompress(packed)))


def problems(document: Document, schema: Document) -> list[str]:
    checker = jsonschema_rs.validator_for({**schema, "$defs": schemas()["$defs"]})
    return [
        f"{'/'.join(map(str, error.instance_path))}: {error.message}"
        for error in checker.iter_errors(document)
    ]


def kind_of(document: Document) -> str:
    return f"{document['apiVersion']}/{document['kind']}"


def documents(name: str, kind: str = "") -> list[Document]:
    [path] = [path for path in MANIFESTS if path.name == name]
    found = yaml.safe_load_all(path.read_text())
    return [document for document in found if document["kind"].startswith(kind)]


def only(name: str, kind: str) -> Document:
    [document] = documents(name, kind)
    return document


def pods(name: str) -> Iterator[Document]:
    """The specification of each pod that a file leads to, as far as Kubernetes' own kinds say it."""
    for document in documents(name):
        if document["kind"] == "Deployment":
            yield document["spec"]["template"]["spec"]
        if document["kind"] == "CronJob":
            yield document["spec"]["jobTemplate"]["spec"]["template"]["spec"]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_every_manifest_fits_its_schema(path: Path) -> None:
    for document in documents(path.name):
        assert problems(document, schemas()["schemas"][kind_of(document)]) == []


def test_the_drivers_pod_template_fits() -> None:
    application = only("guarded-application.yaml", "SparkApplication")
    schema = {"$ref": f"#/$defs/{POD_TEMPLATE}"}
    assert problems(application["spec"]["driver"]["template"], schema) == []


@pytest.mark.parametrize(
    ("name", "kind", "path", "value"),
    [
        ("job.yaml", "Deployment", ("spec", "template", "spec", "terminationGracePeriod"), 120),
        ("job.yaml", "Deployment", ("spec", "replicas"), "one"),
        ("guarded-application.yaml", "SparkApplication", ("spec", "restartPolicy", "type"), "Sometimes"),
        ("guarded-application.yaml", "SparkApplication", ("spec", "driver", "graceSeconds"), 60),
        ("job-monitoring.yaml", "ServiceMonitor", ("spec", "endpoint"), []),
    ],
)
def test_what_is_misspelt_does_not_fit(name: str, kind: str, path: tuple[str, ...], value: object) -> None:
    document = part = only(name, kind)
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    assert problems(document, schemas()["schemas"][kind_of(document)]) != []


@pytest.mark.parametrize("name", ["job.yaml", "job-ha.yaml", *(path.name for path in RENDERED)])
def test_a_supervisor_is_started_with_options_that_there_are(
    name: str, holdfast: Holdfast, tmp_path: Path
) -> None:
    [pod] = pods(name)
    [container] = pod["containers"]
    program, verb, job, *options = container["args"]
    assert (program, verb) == ("holdfast", "run")
    if job == "/jobs/job.py":  # the chart's name for it
        job = "/jobs/counts.py"
    token = tmp_path / "token"
    token.write_text("0" * 40)
    given = [re.sub("(?<=--token-file=).*", str(token), option) for option in options]
    said = holdfast(
        verb, str(DEPLOY / Path(job).relative_to("/").parent / Path(job).name), *given, "--dry-run"
    )
    assert said.returncode == 0, said.stderr
    [port] = container["ports"]
    assert f"--port={port['containerPort']}" in options


@pytest.mark.parametrize("name", ["job.yaml", "job-ha.yaml"])
@pytest.mark.slow
def test_probes_and_prometheus_ask_for_what_is_answered(name: str, tmp_path: Path) -> None:
    from served import TestClient

    from holdfast.server.app import app
    from holdfast.server.server_settings import ServerSettings

    token = "0" * 40
    client = TestClient(app(tmp_path, ServerSettings(host="0.0.0.0", token=token)))
    [pod] = pods(name)
    [container] = pod["containers"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["port"] in [port["name"] for port in container["ports"]]
        # As a kubelet asks: by the pod's address, without a token.
        assert client.get(asked["path"], headers={"host": "10.1.2.3:8081"}).status_code == 200
    [endpoint] = only("job-monitoring.yaml", "ServiceMonitor")["spec"]["endpoints"]
    bearer = {"authorization": f"{endpoint['authorization']['type']} {token}", "host": "10.1.2.3:8081"}
    assert client.get(endpoint["path"], headers=bearer).status_code == 200
    assert client.get(endpoint["path"], headers={"host": "10.1.2.3:8081"}).status_code == 401
    credentials = endpoint["authorization"]["credentials"]
    [secret] = [volume["secret"] for volume in pod["volumes"] if "secret" in volume]
    assert secret["secretName"] == credentials["name"]
    assert f"--token-file=/run/secrets/holdfast/{credentials['key']}" in container["args"]


def test_a_guards_numbers_are_where_its_probes_and_prometheus_ask() -> None:
    application = only("guarded-application.yaml", "SparkApplication")
    driver = application["spec"]["driver"]
    [port] = driver["ports"]
    program = (DEPLOY / "jobs" / "guarded_counts.py").read_text()
    assert f"port={port['containerPort']}," in program
    [container] = driver["template"]["spec"]["containers"]
    server = MetricsServer(list, 0)
    try:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            asked = container[probe]["httpGet"]
            assert asked["port"] == port["containerPort"]
            assert server.url.endswith(asked["path"])
        [endpoint] = only("guarded-monitoring.yaml", "PodMonitor")["spec"]["podMetricsEndpoints"]
        assert endpoint["port"] == port["name"]
        assert server.url.endswith(endpoint["path"])
    finally:
        server.close()


def test_a_pod_has_longer_than_its_guard_gives_a_batch() -> None:
    [grace] = re.findall(r'grace="(\d+)s"', (DEPLOY / "jobs" / "guarded_counts.py").read_text())
    application = only("guarded-application.yaml", "SparkApplication")
    [hourly] = pods("guarded-cronjob.yaml")
    for pod in (application["spec"]["driver"], hourly):
        assert pod["terminationGracePeriodSeconds"] >= int(grace) + 10


def test_exit_codes_are_mapped_as_the_guide_of_the_guard_says() -> None:
    guide = (ROOT / "docs" / "guides" / "guarded-query.md").read_text()
    rows = re.findall(r"^\| ([\d, ]+) \| .* \| (.*) \|$", guide, re.MULTILINE)
    assert len(rows) == 8
    final = {
        int(code) for codes, again in rows if again.startswith(("no", "not ")) for code in codes.split(",")
    }
    [rules] = [
        only("guarded-cronjob.yaml", "CronJob")["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    ]
    [fail] = [rule for rule in rules if rule["action"] == "FailJob"]
    assert set(fail["onExitCodes"]["values"]) == final
    kinds = (errors.Failed, errors.Invalid, errors.NotFound, errors.Corrupt, errors.Unsupported)
    assert final == {kind.exit_code for kind in kinds}
    assert only("guarded-application.yaml", "SparkApplication")["spec"]["restartPolicy"]["type"] == "Always"


@pytest.mark.parametrize(
    "name", ["job.yaml", "job-ha.yaml", "guarded-cronjob.yaml", *(path.name for path in RENDERED)]
)
def test_a_pod_needs_no_root_and_writes_nowhere_but_into_its_volumes(name: str) -> None:
    dockerfile = (DEPLOY / "image" / "Dockerfile").read_text()
    [user] = re.findall(r"^USER (\d+):\d+$", dockerfile, re.MULTILINE)
    [home] = re.findall(r"HOLDFAST_HOME=(\S+)", dockerfile)
    [pod] = pods(name)
    assert pod["securityContext"]["runAsUser"] == int(user)
    assert pod["securityContext"]["runAsNonRoot"]
    [container] = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    mounted = [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
    assert "/tmp" in mounted
    assert any(home.startswith(f"{path}/") for path in mounted)
    named = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == named
    assert container["image"].endswith(f":{__version__}")


@pytest.mark.parametrize("names", [("job.yaml", "job-ha.yaml"), ("chart-alone.yaml", "chart-several.yaml")])
def test_two_supervisors_need_an_election_and_one_does_not(names: tuple[str, str]) -> None:
    alone, several = (only(name, "Deployment") for name in names)
    assert (alone["spec"]["replicas"], alone["spec"]["strategy"]["type"]) == (1, "Recreate")
    assert several["spec"]["replicas"] == 2
    [container] = several["spec"]["template"]["spec"]["containers"]
    assert any(argument.startswith("--ha=") for argument in container["args"])
    assert documents(names[0], "PodDisruptionBudget") == []
    assert only(names[1], "PodDisruptionBudget")["spec"]["minAvailable"] == 1


def test_what_helm_has_rendered_is_of_the_chart_that_is_there() -> None:
    for path in RENDERED:
        assert path.read_text().startswith(f"# chart {render.digest()}\n"), f"run {render.__file__}"
    assert {path.stem for path in RENDERED} == set(render.RELEASES)


def test_the_chart_gives_a_job_what_the_manifests_give_it() -> None:
    """But for names, labels, and what a release chooses: each pod is that of the manifest beside it."""
    for name, chart in (("job.yaml", "chart-alone.yaml"), ("job-ha.yaml", "chart-several.yaml")):
        [ours], [theirs] = (list(pods(each)) for each in (name, chart))
        ours["securityContext"]["fsGroupChangePolicy"] = "OnRootMismatch"
        [container], [rendered] = ours.pop("containers"), theirs.pop("containers")
        rendered.pop("imagePullPolicy")
        assert rendered["args"].pop(2) == "/jobs/job.py"
        assert container["args"].pop(2) == "/jobs/counts.py"
        assert rendered == container
        [code] = [volume for volume in theirs["volumes"] if volume["name"] == "job"]
        [text] = [
            each
            for each in documents(chart, "ConfigMap")
            if each["metadata"]["name"] == code["configMap"]["name"]
        ]
        assert text["data"] == {"job.py": (DEPLOY / "jobs" / "counts.py").read_text()}
        code["configMap"]["name"] = "counts-job"
        assert theirs == ours
        policies = [only(each, "NetworkPolicy")["spec"] for each in ("job.yaml", chart)]
        assert policies[0] == policies[1]
        services = [
            document
            for each in ("job.yaml", chart)
            for document in documents(each)
            if document["kind"] == "Service"
        ]
        assert services[0]["spec"] == services[1]["spec"]
    monitors = [
        only(each, "ServiceMonitor")["spec"] for each in ("job-monitoring.yaml", "chart-several.yaml")
    ]
    assert monitors[0] == monitors[1]


LOCK = """\
first==1.0 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
Second_One==2.1 ; python_version < '3.11' \\
    --hash=sha256:cc
second-one==2.1 ; python_version >= '3.11' \\
    --hash=sha256:dd
third[extra]==3.0 \\
    --hash=sha256:ee
"""


def test_of_a_lock_file_what_is_needed_is_taken_with_its_hashes() -> None:
    taken = locked.locked(LOCK, "second-one==2.1\nthird==3.0\n    # via first\n")
    assert re.findall(r"sha256:(..)", taken) == ["cc", "dd", "ee"]
    assert "python_version < '3.11'" in taken


def test_what_a_lock_file_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("not in the lock file: first==1.1, fourth==4.0")):
        locked.locked(LOCK, "first==1.1\nfourth==4.0\n")


def test_every_package_of_the_real_lock_file_is_found() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert len(locked.entries(lock)) == len(set(re.findall(r"^[A-Za-z0-9._-]+==[^\s;]+", lock, re.MULTILINE)))
