"""Who of several analyses leads: decided by what the group says, and on a real Kafka by its
members.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from edgewake.cloud.analysis import data_dir_lock
from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.standby import Standby
from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.leadership import Leadership, Role
from edgewake.protocol import topics
from edgewake.protocol.errors import LocalError
from tests.analysis.support import unique
from tests.services import PATIENCE_S, freeze, thaw, wait_until

SESSION_S = 4.0
"""Long enough for a busy machine, whose threads may wait a second for their turn."""


@contextmanager
def member(config: KafkaConfig, name: str) -> Iterator[Leadership]:
    """A member of the group; at the end it is as if its process had died: the group hears no more
    of it.
    """
    topic_admin.ensure_topics(config, [topics.LANES])
    member = Leadership(
        config,
        name,
        what="analysis",
        topic=topics.LANES,
        group=topics.ANALYSIS_GROUP,
        session_s=SESSION_S,
    )
    with closing(member) as found:
        yield found


def until(role: Role, *members: Leadership) -> None:
    """The first one gets the role while all take part."""

    def is_it() -> bool:
        for one in members:
            one.poll(0.02)
        return members[0].role is role

    wait_until(is_it, f"{role}: {[one.role for one in members]}")


def test_one_leads_whoever_joins_and_the_next_one_leads_when_it_is_gone(
    kafka_config: KafkaConfig,
) -> None:
    name = unique("first")
    with ExitStack() as lives:
        leader = lives.enter_context(member(kafka_config, unique("leader")))
        until(Role.LEADER, leader)
        with member(kafka_config, name) as first:
            until(Role.STANDBY, first, leader)
            with member(kafka_config, unique("second")) as second:
                until(Role.STANDBY, second, leader, first)
                assert (leader.role, first.role) == (Role.LEADER, Role.STANDBY), (
                    "who joins takes nothing from the leader"
                )
            lives.close()
            until(Role.LEADER, first)
        with member(kafka_config, name) as again:
            until(Role.LEADER, again)


def test_two_of_one_name_take_no_turns(kafka_config: KafkaConfig) -> None:
    name = unique("copy")
    with member(kafka_config, name) as first:
        until(Role.LEADER, first)
        with member(kafka_config, name) as second:
            until(Role.LEADER, second, first)
            until(Role.DEPOSED, first, second)
            with pytest.raises(LocalError, match="stands by when it is started again"):
                first.leads()
            assert second.leads()


LEADER = """
import random, sys, threading, time
from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.standby import Standby

config = AnalysisConfig.model_validate_json(sys.argv[1])
lead = Standby(config, random.Random(1), threading.Event(), lambda: None).wait()
print("leads", flush=True)
while True:
    lead.leads()
    time.sleep(0.02)
"""


@pytest.mark.long
def test_one_that_hung_in_a_shared_folder_is_waited_for_and_ends_before_another_one_begins(
    kafka_config: KafkaConfig, tmp_path: Path
) -> None:
    """What it would write of checkpoints there no producer fences: so nobody begins while it can
    still go on.
    """
    topic_admin.ensure_topics(kafka_config, [topics.LANES])
    shared = tmp_path / "shared"
    hung, other = (
        AnalysisConfig(
            data_dir=tmp_path / name, shared_dir=shared, session_s=SESSION_S, kafka=kafka_config
        )
        for name in "ab"
    )
    with subprocess.Popen(
        [sys.executable, "-c", LEADER, hung.model_dump_json()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        stop, found = threading.Event(), []
        second = Standby(other, random.Random(2), stop, lambda: None)
        thread = threading.Thread(target=lambda: found.append(second.wait()))
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "leads\n"
            thread.start()
            wait_until(
                lambda: any("another analysis leads" in why for why in second.said),
                "the other one stands by",
            )
            freeze(process.pid)
            wait_until(
                lambda: any("still uses" in why for why in second.said),
                "it has the lead, and waits",
            )
            assert not found
            thaw(process.pid)
            _, said = process.communicate(timeout=PATIENCE_S)
            assert "another analysis leads now: this one ends" in said
            wait_until(lambda: found, "the other one begins")
            assert data_dir_lock.lock(shared) is None, "it has the folder now"
        finally:
            process.kill()
            stop.set()
            thread.join()
    (leadership,) = found
    assert leadership is not None
    leadership.close()


@pytest.mark.parametrize("is_alive", [True, False])
def test_who_waits_for_a_killed_leader_is_not_said_to_be_ready(
    kafka_config: KafkaConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture, is_alive: bool
) -> None:
    """Kafka keeps the lead of a process that was killed for a session, in which nobody computes:
    no part that says it is ready stands behind it. With a leader that lives it is said.
    """
    caplog.set_level("INFO", "edgewake.analysis")
    topic_admin.ensure_topics(kafka_config, [topics.LANES])
    first, second = (
        AnalysisConfig(data_dir=tmp_path / name, session_s=SESSION_S, kafka=kafka_config)
        for name in "ab"
    )

    def events() -> list[str]:
        return [getattr(record, "event", "") for record in caplog.records]

    with subprocess.Popen(
        [sys.executable, "-c", LEADER, first.model_dump_json()],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        stop, found, ready = threading.Event(), [], []
        waiting = Standby(
            second if is_alive else first,
            random.Random(2),
            stop,
            lambda: None,
            on_ready=lambda: ready.append("ready"),
        )
        thread = threading.Thread(target=lambda: found.append(waiting.wait()))
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "leads\n"
            if not is_alive:
                process.kill()
                process.wait()
            thread.start()
            if is_alive:
                wait_until(lambda: "analysis.standby" in events(), "it stands by")
                assert "part.ready" not in events()
                assert not ready
                wait_until(lambda: "part.ready" in events(), "it is ready to take over")
                assert ready == ["ready"]
                assert not found
            else:
                wait_until(lambda: found, "it leads")
                assert "part.ready" not in events()
                assert not ready
        finally:
            process.kill()
            stop.set()
            thread.join()
    (leadership,) = found
    if leadership is not None:
        leadership.close()
