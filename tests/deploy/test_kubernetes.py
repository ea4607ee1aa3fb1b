from __future__ import annotations

from typing import Any

import pytest

from router.config.settings import Settings
from tests.deploy.files import DEPLOY, load_yaml

FOLDER = DEPLOY / "kubernetes"
MANIFESTS = sorted(path for path in FOLDER.glob("*.yaml") if path.name not in ("kustomization.yaml", "podmonitor.yaml"))


def document(name: str) -> dict[str, Any]:
    first = load_yaml(FOLDER / name)[0]
    assert isinstance(first, dict)
    return first


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("version", ["1.30", "1.34"])
def test_manifests_fit_the_published_schemas(path: Any, version: str) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for manifest in load_yaml(path):
        kubernetes_validate.validate(manifest, version, strict=True)


def test_the_kustomization_lists_every_manifest() -> None:
    listed = document("kustomization.yaml")["resources"]
    assert sorted(listed) == sorted(path.name for path in FOLDER.glob("*.yaml") if path.name != "kustomization.yaml")


def test_all_parts_select_the_same_pods() -> None:
    labels = {"app.kubernetes.io/name": "llamaherd"}
    workload = document("statefulset.yaml")["spec"]
    assert workload["template"]["metadata"]["labels"] == labels
    assert workload["selector"]["matchLabels"] == labels
    services = load_yaml(FOLDER / "service.yaml")
    assert all(service["spec"]["selector"] == labels for service in services)
    assert workload["serviceName"] in {service["metadata"]["name"] for service in services}
    for name in ("poddisruptionbudget.yaml", "podmonitor.yaml"):
        assert document(name)["spec"]["selector"]["matchLabels"] == labels
    assert document("networkpolicy.yaml")["spec"]["podSelector"]["matchLabels"] == labels


def test_probes_ask_for_the_right_thing_and_the_drain_fits() -> None:
    pod = document("statefulset.yaml")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    probes = {name: container[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert probes == {"startupProbe": "/health", "livenessProbe": "/health", "readinessProbe": "/ready"}
    delay = next(float(e["value"]) for e in container["env"] if e["name"] == "LLAMAHERD_SHUTDOWN_DELAY")
    assert pod["terminationGracePeriodSeconds"] > delay + Settings().drain_timeout + 20


def test_volumes_and_ports_are_named_alike() -> None:
    spec = document("statefulset.yaml")["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    volumes = {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    (endpoint,) = document("podmonitor.yaml")["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in {port["name"] for port in container["ports"]}
    assert endpoint["path"] == "/metrics"
