"""deploy/examples/alerts.yaml: each alarm asks for a metric that exists and rings when it should;
metrics are named as Prometheus wants them. Kafka's disks are watched: `ew.up` has no bound in
bytes.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

from edgewake.cloud import process_metrics
from edgewake.cloud.access.metrics import Metrics as AccessMetrics
from edgewake.cloud.bridge.metrics import BridgeMetrics
from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.lake.metrics import LakeMetrics
from edgewake.cloud.ops.tables.metrics import TablesCollector
from edgewake.cloud.ops.tables.tables import OpsTables
from edgewake.cloud.push.metrics import Metrics as PushMetrics
from edgewake.cloud.sequencer.metrics import SequencerMetrics
from edgewake.deploy import cli
from edgewake.protocol import topics
from edgewake.protocol.frames.stream import Stream
from edgewake.protocol.ops.device import DeviceSeen
from edgewake.protocol.ops.query import Progress, QueryState, Reached, Registration
from tests.deploy.production import certificates

DEPLOY = Path(cli.__file__).parent
FILE = DEPLOY / "examples" / "alerts.yaml"
GROUPS = yaml.safe_load(FILE.read_text())["groups"]
RULES = [rule for group in GROUPS for rule in group["rules"]]
OF_OTHERS = ("node_filesystem", "probe_ssl")
OF_PROMETHEUS = ("up{",)
CASES = Path(__file__).with_name("alerts_test.yaml")
OLD_RULES = {
    "EdgewakeSequencerBehind", "EdgewakeNoSequencer", "EdgewakeNothingAccepted",
    "EdgewakeReadingsDeleted", "EdgewakeKafkaDiskFills",
    "EdgewakeKafkaDiskNearlyFull", "EdgewakeReadingsRefused",
}  # fmt: skip
"""Those without a case: a bound and nothing else."""
PLAIN = OLD_RULES | {
    "EdgewakeSeveralVersions", "EdgewakeQueryRetries", "EdgewakeQuerySheds", "EdgewakeLakeFails",
    "EdgewakeLakeLost",
    "EdgewakeLakeDamaged", "EdgewakeServerCertificateEndsSoon",
}  # fmt: skip


class _Gathered(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def tables() -> OpsTables:
    """With a query and a stream."""
    found = OpsTables()
    found.queries["fast"] = Registration(name="fast", text="", registered_at=1)
    reached = {"s": Reached(offsets={0: 70, 1: 40}, joined_at_offsets={0: 50})}
    found.progress["fast"] = Progress(
        query="fast", stream="s", state=QueryState.RUNNING, registered_at=1, updated_at=1,
        lag=3, late=2, shed=1, watermark=5000, reached=reached,
    )  # fmt: skip
    found.streams["s"] = Stream(name="s")
    found.rates.add(DeviceSeen(device="d", last_seen=1, streams={"s": 7}))
    return found


def registry() -> CollectorRegistry:
    """All that our parts say, in one."""
    access = AccessMetrics().registry
    PushMetrics(access)
    access.register(TablesCollector(tables()))
    for part in (BridgeMetrics(), SequencerMetrics(), LakeMetrics()):
        access.register(_Gathered(part.gather()))
    return access


def names() -> set[str]:
    """Metrics as Prometheus names them; those of the analysis, which needs Spark to be made, from
    its source.
    """
    source = (DEPLOY.parent / "cloud" / "analysis" / "run.py").read_text()
    own = CollectorRegistry()
    process_metrics.register(own, "bridge", certificates=[Path("x.crt")])
    families = [*registry().collect(), *own.collect()]
    return {f"{one.name}_total" if one.type == "counter" else one.name for one in families} | set(
        re.findall(r"edgewake_analysis_\w+", source)
    )


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alarm_asks_for_metrics_that_exist(rule: dict[str, object]) -> None:
    expression = str(rule["expr"])
    asked = set(re.findall(r"\bedgewake_\w+", expression))
    assert asked <= names()
    assert asked or any(name in expression for name in (*OF_OTHERS, *OF_PROMETHEUS))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alarm_says_how_bad_it_is_and_what_is_the_matter(
    rule: dict[str, dict[str, str]],
) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert len(rule["annotations"]["summary"]) > 30


def test_there_is_an_alarm_for_each_thing_that_a_user_would_miss() -> None:
    wanted = {
        "EdgewakePartDown", "EdgewakeDeviceSilent", "EdgewakeQueryFailed", "EdgewakeQueryLags",
        "EdgewakeQueryStandsStill",
        "EdgewakeLakeStandsStill", "EdgewakePushFails", "EdgewakeCertificateEndsSoon",
        "EdgewakeNoAnalysis", "EdgewakeReadingsLate", "EdgewakeNoPush", "EdgewakeDeliveryRefused",
    }  # fmt: skip
    assert wanted | OLD_RULES <= {rule["alert"] for rule in RULES}


def promtool(*words: str, given: str = "") -> str:
    """What it says; AssertionError where it complains."""
    done = subprocess.run(
        ["promtool", *words], input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_promtool_accepts_the_rules_and_each_rings_when_it_should() -> None:
    promtool("check", "rules", str(FILE))
    promtool("test", "rules", str(CASES))
    tried = {
        one["alertname"]
        for case in yaml.safe_load(CASES.read_text())["tests"]
        for one in case["alert_rule_test"]
    }
    assert {rule["alert"] for rule in RULES} - PLAIN == tried


def test_promtool_finds_no_fault_in_the_names_of_our_metrics() -> None:
    """Counters end in _total and no gauge does, units are base units, every metric has a help
    text.
    """
    assert promtool("check", "metrics", given=generate_latest(registry()).decode()).strip() == ""
    named = names()
    assert not [name for name in named if name.endswith(("_per_s", "_per_second", "_ms"))]


def test_what_is_counted_is_a_counter() -> None:
    told = generate_latest(registry()).decode()
    for line in (
        'edgewake_query_records_total{query="fast"} 60.0',
        'edgewake_query_late_readings_total{query="fast"} 2.0',
        'edgewake_query_shed_readings_total{query="fast"} 1.0',
        'edgewake_query_state{query="fast",state="running"} 1.0',
        'edgewake_query_watermark_timestamp_seconds{query="fast"} 5.0',
        'edgewake_stream_records_total{stream="s"} 7.0',
        "# TYPE edgewake_access_records_total counter",
        "# TYPE edgewake_bridge_mqtt_connections_total counter",
    ):
        assert line in told


def test_a_part_says_what_it_is_how_long_it_runs_and_when_its_certificates_end(
    tmp_path: Path,
) -> None:
    done = certificates(tmp_path, "--bridge", "bridge-1", DAYS="10")
    assert done.returncode == 0, done.stderr
    (tmp_path / "broken.crt").write_text("no certificate")
    own = CollectorRegistry()
    process_metrics.register(
        own,
        "bridge",
        certificates=[tmp_path / "bridges" / "bridge-1.crt", tmp_path / "broken.crt", None],
    )
    told = {
        (one.name, one.labels.get("file", "")): one
        for family in own.collect()
        for one in family.samples
    }
    assert told["edgewake_build_info", ""].labels["part"] == "bridge"
    assert told["edgewake_uptime_seconds", ""].value >= 0
    assert told["edgewake_certificate_end_timestamp_seconds", "broken.crt"].value == 0
    end = datetime.fromtimestamp(
        told["edgewake_certificate_end_timestamp_seconds", "bridge-1.crt"].value, UTC
    )
    assert timedelta(days=9) < end - datetime.now(UTC) < timedelta(days=11)
    assert "process_start_time_seconds" in {name for name, _ in told}


def test_a_lost_record_is_counted_under_the_outcome_that_the_alarm_asks_for() -> None:
    (rule,) = [rule for rule in RULES if rule["alert"] == "EdgewakeReadingsDeleted"]
    (outcome,) = re.findall(r'outcome="(\w+)"', rule["expr"])
    source = (DEPLOY.parent / "cloud" / "sequencer" / "sequencer.py").read_text()
    assert f'outcomes["{outcome}"] += ' in source


def test_the_disk_alarm_comes_before_the_bridges_stop() -> None:
    """ew.up is kept by time alone; the bridges stop when half of that time waits.

    The disks must last longer than that.
    """
    (up,) = [topic_admin.topic_settings(KafkaConfig(), topics.UP)]
    assert up["retention.bytes"] == "-1"
    (rule,) = [rule for rule in RULES if rule["alert"] == "EdgewakeKafkaDiskFills"]
    (hours,) = re.findall(r"\[1h\], (\d+) \* 3600\)", rule["expr"])
    assert int(hours) * 2 >= KafkaConfig().up_retention_hours
    (folder,) = re.findall(r'mountpoint="([^"]+)"', rule["expr"])
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    mounts = [
        one.partition(":")[2]
        for name in ("kafka-1", "kafka-2", "kafka-3")
        for one in compose["services"][name]["volumes"]
    ]
    assert all(mount.startswith(folder) for mount in mounts)
