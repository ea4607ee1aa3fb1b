"""What alerts and dashboards ask for must exist."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from protocol.errors import ErrorKind
from router.metrics.exposition import Metrics
from router.metrics.observations import Observations
from router.scheduling.events import ExitReason
from router.scheduling.states import State
from tests.deploy.files import DEPLOY, load_yaml
from tests.router.ops.test_metrics import Source, observe_everything

ALERTS = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARD = DEPLOY / "grafana" / "dashboards" / "llamaherd.json"

_METRIC = re.compile(r"\b(?:llamaherd_\w+|llamacpp:\w+|process_\w+)\b")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"([^\"]*)\"")
_FROM_PROMETHEUS = {"instance", "job"}


def exported() -> dict[str, set[str]]:
    """Sample names that a gateway exports, and their labels."""
    metrics = Metrics(Observations(), Source())
    observe_everything(metrics)
    names: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(asyncio.run(metrics.scrape()).decode()):
        for sample in family.samples:
            names.setdefault(sample.name, set()).update(sample.labels)
    return names


EXPORTED = exported()


def alert_queries() -> list[str]:
    (document,) = load_yaml(ALERTS)
    return [rule["expr"] for group in document["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    document = json.loads(DASHBOARD.read_text())
    return [panel for panel in document["panels"] if panel["type"] != "row"]


def check(query: str) -> None:
    for name in _METRIC.findall(query):
        assert name in EXPORTED, f"{name} in {query}"
    for selector in re.findall(r"([\w:]+)\{([^}]*)\}", query):
        name, matchers = selector
        for label, _ in _MATCHER.findall(matchers):
            assert label in EXPORTED.get(name, set()) | _FROM_PROMETHEUS, f"label {label} of {name}"


def test_alerts_ask_for_metrics_that_exist() -> None:
    queries = alert_queries()
    assert len(queries) >= 8
    for query in queries:
        check(query)


def test_alerts_name_states_reasons_and_ends_that_exist() -> None:
    known: dict[str, set[str]] = {
        "state": {state.value for state in State},
        "reason": {reason.value for reason in ExitReason},
        "end": {kind.value for kind in ErrorKind},
        "result": {"done", "cancelled", "failed"},
    }
    for query in alert_queries():
        for label, values in _MATCHER.findall(query):
            if label in known:
                assert set(values.split("|")) <= known[label], query


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_panels_ask_for_metrics_that_exist(panel: dict[str, Any]) -> None:
    assert panel["targets"]
    for target in panel["targets"]:
        check(target["expr"])
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        grouped = re.search(r"by \(([^)]*)\)", target["expr"])
        if grouped:
            assert shown <= {label.strip() for label in grouped[1].split(",")}, target["expr"]


def test_panels_do_not_overlap() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        mine = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not mine & cells, panel["title"]
        assert place["x"] + place["w"] <= 24
        cells |= mine


def test_the_autoscaler_watches_a_metric_that_exists() -> None:
    (document,) = load_yaml(DEPLOY / "kubernetes" / "autoscaler.yaml")
    assert document["spec"]["metrics"][0]["pods"]["metric"]["name"] in EXPORTED


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_accepts_rules_and_configuration(tmp_path: Path) -> None:
    shutil.copy(ALERTS, tmp_path)
    (tmp_path / "key").write_text("secret")
    config = tmp_path / "prometheus.yml"
    config.write_text(
        (DEPLOY / "prometheus" / "prometheus.yml").read_text().replace("/keys/observe-key", str(tmp_path / "key"))
    )
    done = subprocess.run(["promtool", "check", "config", str(config)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_lists_the_metrics_that_exist() -> None:
    text = (DEPLOY / "README.md").read_text().split("## Metrics")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    listed = {f"llamaherd_{name}" for row in rows for name in re.findall(r"`(\w+)(?:\{[^`]*\})?`", row)}
    exported = {re.sub(r"_(bucket|sum|count)$", "", name) for name in EXPORTED if name.startswith("llamaherd_")}
    assert listed == exported
