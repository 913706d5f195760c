"""A real Prometheus reads what our parts say, computes our alarms, and is asked as Grafana asks it.

Grafana's Prometheus source asks by POST with a form: `query_range` with start, end and step in
seconds for what is drawn over time, `query` for one value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml
from prometheus_client import start_http_server

from edgewake.cloud import process_metrics
from tests.deploy.test_alerts import FILE, RULES, registry
from tests.deploy.test_grafana import DASHBOARDS
from tests.services import Process, free_ports, wait_until

pytestmark = pytest.mark.services

TARGETS: Final = [
    target for panel in DASHBOARDS["system"]["panels"] for target in panel.get("targets", ())
]
SCRAPED: Final = ("up", "process_resident_memory_bytes")
"""Said by Prometheus itself, or by its library in our process."""


class Prometheus:
    """A running one: a part of ours is up, and one that it knows of is down."""

    def __init__(self, folder: Path) -> None:
        self.part, self.dead, self._port = free_ports(3)
        config = folder / "prometheus.yaml"
        targets = [f"127.0.0.1:{port}" for port in (self.part, self.dead)]
        config.write_text(
            yaml.safe_dump(
                {
                    "global": {
                        "scrape_interval": "500ms",
                        "scrape_timeout": "400ms",
                        "evaluation_interval": "1s",
                    },
                    "rule_files": [str(FILE)],
                    "scrape_configs": [
                        {"job_name": "edgewake", "static_configs": [{"targets": targets}]}
                    ],
                }
            )
        )
        address = f"127.0.0.1:{self._port}"
        command = ["prometheus", f"--config.file={config}", f"--web.listen-address={address}"]
        self.process = Process(
            [*command, f"--storage.tsdb.path={folder / 'tsdb'}"], folder / "prometheus.log"
        )

    def ask(self, path: str, **form: str | float) -> Any:
        """What is in an answer that succeeded."""
        answer = httpx.post(f"http://127.0.0.1:{self._port}/api/v1/{path}", data=form, timeout=60)
        body = answer.json()
        assert body["status"] == "success", (form, body)
        return body["data"]

    def value(self, expression: str) -> float | None:
        """One number now; None where there is none."""
        found = self.ask("query", query=expression)["result"]
        return float(found[0]["value"][1]) if found else None

    def rules(self) -> list[dict[str, Any]]:
        """The alarms as it computes them."""
        url = f"http://127.0.0.1:{self._port}/api/v1/rules"
        groups = httpx.get(url, timeout=60).json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    one = Prometheus(tmp_path_factory.mktemp("prometheus"))
    told = registry()
    process_metrics.register(told, "bridge")
    server, thread = start_http_server(one.part, addr="127.0.0.1", registry=told)
    with one.process:
        one.process.wait_for("Server is ready to receive web requests")
        wait_until(lambda: one.value("count(up == 1)") == 1, "our part is read")
        # A rate needs two readings.
        many = "min(count_over_time(edgewake_bridge_held_back[1h]))"
        wait_until(lambda: (one.value(many) or 0) >= 3, "it was read several times")
        yield one
    server.shutdown()
    server.server_close()
    thread.join()


def present() -> set[str]:
    """Names of samples that the part says here: some come with the first event of their kind."""
    own = {sample.name for family in registry().collect() for sample in family.samples}
    return own | {"edgewake_build_info", "edgewake_uptime_seconds"}


@pytest.mark.parametrize("target", TARGETS, ids=lambda one: str(one["expr"]))
def test_a_panel_is_answered_as_grafana_asks(
    prometheus: Prometheus, target: dict[str, Any]
) -> None:
    expression = target["expr"]
    now_s = prometheus.value("vector(time())")
    assert now_s is not None
    if target.get("instant"):
        found = prometheus.ask("query", query=expression)
        assert found["resultType"] in ("vector", "scalar")
    else:
        found = prometheus.ask("query_range", query=expression, start=now_s - 60, end=now_s, step=1)
        assert found["resultType"] == "matrix"
    asked = set(re.findall(r"\bedgewake_\w+", expression))
    if asked and asked <= present():
        assert found["result"], "it draws nothing, though the metrics are there"


def test_a_part_that_is_down_is_counted_and_one_that_is_up_says_what_it_is(
    prometheus: Prometheus,
) -> None:
    down = next(one["expr"] for one in TARGETS if "up{" in one["expr"])
    assert prometheus.value(down) == 1
    ((labels, value),) = [
        (one["metric"], one["value"][1])
        for one in prometheus.ask("query", query="edgewake_build_info")["result"]
    ]
    assert (labels["part"], labels["job"], value) == ("bridge", "edgewake", "1")
    uptime = prometheus.value("edgewake_uptime_seconds")
    assert uptime is not None
    wait_until(lambda: (prometheus.value("edgewake_uptime_seconds") or 0) > uptime, "time goes on")


def test_prometheus_computes_every_alarm_and_sees_the_part_that_is_down(
    prometheus: Prometheus,
) -> None:
    def all_computed() -> bool:
        return all(one["health"] != "unknown" for one in prometheus.rules())

    wait_until(all_computed, "each alarm was computed")
    rules = {one["name"]: one for one in prometheus.rules()}
    assert rules.keys() == {rule["alert"] for rule in RULES}
    assert {name: one["lastError"] for name, one in rules.items() if one["health"] != "ok"} == {}
    (raised,) = rules["EdgewakePartDown"]["alerts"]
    assert raised["labels"]["instance"] == f"127.0.0.1:{prometheus.dead}"
