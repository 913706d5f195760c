"""What the agent tells Prometheus."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from edgewake.edge.page.metrics import exposition
from tests.edge.page.test_page_text import LOG, SOURCE


def samples(status: dict[str, Any]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(exposition({"running": True, "log": LOG} | status))
    return {
        (sample.name, tuple(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.mark.parametrize(
    ("status", "up", "connected"),
    [
        ({"running": True, "connection": "streaming"}, 1, 1),
        ({"running": True, "connection": "waiting"}, 1, 0),
        ({"running": True}, 1, 0),
        ({"running": False, "connection": "streaming"}, 0, 0),
    ],
    ids=["connected", "without a broker", "of another version", "a dead one said so last"],
)
def test_up_and_connected_are_two_things(status: dict[str, Any], up: int, connected: int) -> None:
    found = samples(status)
    assert (found["edgewake_agent_up", ()], found["edgewake_agent_connected", ()]) == (
        up,
        connected,
    )


def test_every_number_of_the_status_is_a_sample() -> None:
    log = LOG | {
        "backlog_readings": 3, "backlog_bytes": 99, "oldest_unacked_s": 2.5, "lost": {"quota": 4},
        "streams": {"a": {"accepted": 10, "waiting": 2}, "b": {"accepted": 20, "waiting": 1}},
    }  # fmt: skip
    sources = {
        "1 x": SOURCE | {"refused": {"json": 6}, "failures": 7},
        "2 y": SOURCE | {"state": "waiting", "taken": 8},
    }
    found = {
        f"{name.removeprefix('edgewake_agent_')}{dict(labels)}": value
        for (name, labels), value in samples({"log": log, "sources": sources}).items()
    }
    assert found == {
        "up{}": 1, "uptime_seconds{}": 0, "connected{}": 0,
        "backlog_readings{}": 3, "backlog_bytes{}": 99,
        "oldest_unacked_seconds{}": 2.5,
        "lost_readings_total{'reason': 'quota'}": 4, "one_way_sent_total{}": 0,
        "one_way_dropped_total{}": 0,
        "accepted_readings_total{'stream': 'a'}": 10, "accepted_readings_total{'stream': 'b'}": 20,
        "waiting_readings{'stream': 'a'}": 2, "waiting_readings{'stream': 'b'}": 1,
        "source_up{'source': '1 x'}": 1, "source_up{'source': '2 y'}": 0,
        "source_taken_total{'source': '1 x'}": 5, "source_taken_total{'source': '2 y'}": 8,
        "source_dropped_total{'source': '1 x'}": 1, "source_dropped_total{'source': '2 y'}": 1,
        "source_failures_total{'source': '1 x'}": 7, "source_failures_total{'source': '2 y'}": 0,
        "source_refused_total{'source': '1 x', 'reason': 'json'}": 6,
    }  # fmt: skip


def test_an_age_of_nothing_is_nought() -> None:
    assert samples({})["edgewake_agent_oldest_unacked_seconds", ()] == 0


@given(
    st.text(
        st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from('\\"\n{}=,'), max_size=20
    )
)
def test_whatever_a_source_is_called_prometheus_reads_it(name: str) -> None:
    found = samples({"sources": {name: SOURCE}})
    assert found["edgewake_agent_source_taken_total", (("source", name),)] == 5
