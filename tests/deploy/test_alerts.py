"""deploy/examples/alerts.yaml: each alarm asks for a metric that exists, and Kafka's disks are watched: `ew.up` has no bound in bytes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from edgewake.cloud.bridge.metrics import BridgeMetrics
from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.sequencer.metrics import SequencerMetrics
from edgewake.deploy import cli
from edgewake.protocol import topics

DEPLOY = Path(cli.__file__).resolve().parent
RULES = yaml.safe_load((DEPLOY / "examples" / "alerts.yaml").read_text())["groups"][0]["rules"]


def names() -> set[str]:
    """Metrics as Prometheus names them."""
    families = [*BridgeMetrics().gather(), *SequencerMetrics().gather()]
    return {f"{one.name}_total" if one.type == "counter" else one.name for one in families}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alarm_asks_for_metrics_that_exist(rule: dict[str, object]) -> None:
    asked = set(re.findall(r"\bedgewake_\w+", str(rule["expr"])))
    assert asked <= names()
    assert asked or "node_filesystem" in str(rule["expr"])
    assert rule["annotations"]


def test_a_lost_record_is_counted_under_the_outcome_that_the_alarm_asks_for() -> None:
    (rule,) = [rule for rule in RULES if rule["alert"] == "EdgewakeReadingsDeleted"]
    (outcome,) = re.findall(r'outcome="(\w+)"', rule["expr"])
    source = (DEPLOY.parent / "cloud" / "sequencer" / "sequencer.py").read_text()
    assert f'outcomes["{outcome}"] += ' in source


def test_the_disk_alarm_comes_before_the_bridges_stop() -> None:
    """ew.up is kept by time alone; the bridges stop when half of that time waits. The disks must last longer than that."""
    (up,) = [topic_admin.topic_settings(KafkaConfig(), topics.UP)]
    assert up["retention.bytes"] == "-1"
    (rule,) = [rule for rule in RULES if rule["alert"] == "EdgewakeKafkaDiskFills"]
    (hours,) = re.findall(r"\[1h\], (\d+) \* 3600\)", rule["expr"])
    assert int(hours) * 2 >= KafkaConfig().up_retention_hours
    (folder,) = re.findall(r'mountpoint="([^"]+)"', rule["expr"])
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    mounts = [one.partition(":")[2] for name in ("kafka-1", "kafka-2", "kafka-3") for one in compose["services"][name]["volumes"]]
    assert all(mount.startswith(folder) for mount in mounts)
