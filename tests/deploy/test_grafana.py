"""Dashboards in deploy/examples/grafana: each question asks for metrics and labels that exist, and
Prometheus reads it; panels lie beside one another.
"""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.test_alerts import DEPLOY, names, promtool, registry

FOLDER = DEPLOY / "examples" / "grafana"
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
OF_PROMETHEUS = {"job", "instance"}
OF_SOURCE = {"reason", "state"}


def questions() -> list[str]:
    panels = DASHBOARDS["system"]["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def labels() -> set[str]:
    """Labels of all metrics that our parts say here."""
    return {
        label for family in registry().collect() for one in family.samples for label in one.labels
    }


@pytest.mark.parametrize("expression", questions())
def test_a_panel_asks_for_metrics_that_exist(expression: str) -> None:
    asked = set(re.findall(r"\bedgewake_\w+", expression))
    assert asked <= names()
    assert asked or "up{" in expression or "process_" in expression
    grouped = set(re.findall(r"by \((\w+)\)", expression))
    matched = set(re.findall(r"[{,](\w+)=", expression))
    assert grouped | matched <= labels() | OF_PROMETHEUS | OF_SOURCE


def test_prometheus_reads_every_question(tmp_path: Path) -> None:
    rules = [{"record": f"one:{i}", "expr": one} for i, one in enumerate(questions())]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": rules}]}))
    assert len(rules) > 20
    promtool("check", "rules", str(file))


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_have_titles_units_and_a_place_of_their_own(name: str) -> None:
    panels: list[dict[str, Any]] = DASHBOARDS[name]["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["title"] for panel in panels)
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        assert panel["type"] == "row" or panel["fieldConfig"]["defaults"]["unit"]
    for one, other in itertools.combinations((panel["gridPos"] for panel in panels), 2):
        is_beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        is_below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert is_beside or is_below, (one, other)


def test_dashboards_name_the_kinds_of_the_sources_that_are_provisioned() -> None:
    text = (FOLDER / "datasources.yaml").read_text()
    provisioned = {one["type"] for one in yaml.safe_load(text)["datasources"]}
    asked = {
        one["query"]
        for dashboard in DASHBOARDS.values()
        for one in dashboard["templating"]["list"]
        if one["type"] == "datasource"
    }
    assert asked == provisioned
