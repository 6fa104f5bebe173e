"""Write `schemas.json.xz`, against which the manifests of `deploy/` are held: `KUBERNETES CRD.yaml...`.

KUBERNETES is a `v*-local-strict` folder of the package kubernetes-validate on PyPI: the schemas of
Kubernetes' own API, as kubectl's strict validation takes them. The others are definitions of custom
resources: of the Prometheus operator (the Go module github.com/prometheus-operator/prometheus-operator, in
`example/prometheus-operator-crd`) and of Kubeflow's Spark operator (its repository, `config/crd/bases`).
`schemas.json.xz` was made of Kubernetes 1.37, of the Prometheus operator 0.85.0 and of the Spark operator
2.5.2, all under the Apache License 2.0. Only kinds that the manifests use are kept, with what they refer to,
and without descriptions. Rules in CEL are not part of the schemas.
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path
from typing import Any, Final

import yaml

KINDS: Final = {
    "v1/ConfigMap": "configmap-v1",
    "v1/PersistentVolumeClaim": "persistentvolumeclaim-v1",
    "v1/Secret": "secret-v1",
    "v1/Service": "service-v1",
    "v1/ServiceAccount": "serviceaccount-v1",
    "apps/v1/Deployment": "deployment-apps-v1",
    "batch/v1/CronJob": "cronjob-batch-v1",
    "networking.k8s.io/v1/NetworkPolicy": "networkpolicy-networking-v1",
    "policy/v1/PodDisruptionBudget": "poddisruptionbudget-policy-v1",
    "rbac.authorization.k8s.io/v1/Role": "role-rbac-v1",
    "rbac.authorization.k8s.io/v1/RoleBinding": "rolebinding-rbac-v1",
}
TARGET: Final = Path(__file__).with_name("schemas.json.xz")
_WORDS: Final = ("description", "default", "format")


def made(kubernetes: Path, definitions: list[Path]) -> dict[str, Any]:
    """The schemas by API version and kind, with `$defs` beside them."""
    named = json.loads((kubernetes / "_definitions.json").read_text(encoding="utf-8"))
    schemas: dict[str, Any] = {}
    kept: dict[str, Any] = {}
    for kind, name in KINDS.items():
        schemas[kind] = _plain(
            json.loads((kubernetes / f"{name}.json").read_text(encoding="utf-8")), named, kept
        )
    for path in definitions:
        crd = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]
        for version in crd["versions"]:
            kind = f"{crd['group']}/{version['name']}/{crd['names']['kind']}"
            schemas[kind] = _closed(version["schema"]["openAPIV3Schema"], whole=True)
    return {"schemas": schemas, "$defs": kept}


def _plain(schema: Any, named: dict[str, Any], kept: dict[str, Any]) -> Any:
    """A schema of Kubernetes' own without words; what it refers to goes to `kept`."""
    if isinstance(schema, list):
        return [_plain(part, named, kept) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(reference := schema.get("$ref"), str):
        name = reference.rpartition("/")[2]
        if name not in kept:
            kept[name] = None  # a schema may refer to itself
            kept[name] = _plain(named["$defs"][name], named, kept)
        return {"$ref": f"#/$defs/{name}"}
    return {
        key: {name: _plain(part, named, kept) for name, part in value.items()}
        if key == "properties"
        else _plain(value, named, kept)
        for key, value in schema.items()
        if not _spoken(key, value)
    }


def _closed(schema: dict[str, Any], *, whole: bool = False) -> dict[str, Any]:
    """A schema of a CustomResourceDefinition that takes no field which it does not name."""
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    closed = {
        key: value for key, value in schema.items() if not key.startswith("x-") and not _spoken(key, value)
    }
    nullable = closed.pop("nullable", False)
    if "properties" in closed:
        closed["properties"] = {name: _closed(part) for name, part in closed["properties"].items()}
        if whole:
            closed["properties"]["metadata"] = {"type": "object"}
            closed["required"] = sorted({"apiVersion", "kind", "metadata", *closed.get("required", [])})
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            closed.setdefault("additionalProperties", False)
    if isinstance(closed.get("items"), dict):
        closed["items"] = _closed(closed["items"])
    if isinstance(closed.get("additionalProperties"), dict):
        closed["additionalProperties"] = _closed(closed["additionalProperties"])
    return {"anyOf": [closed, {"type": "null"}]} if nullable else closed


def _spoken(key: str, value: Any) -> bool:
    """Whether it is of no use to who checks: a text beside a schema, or a format by Kubernetes' names."""
    return key in _WORDS and not (isinstance(value, dict) and key != "default")


if __name__ == "__main__":
    folder, *crds = map(Path, sys.argv[1:])
    text = json.dumps(made(folder, crds), sort_keys=True, separators=(",", ":"))
    TARGET.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
