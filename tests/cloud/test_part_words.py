"""Parts that no supervisor of ours tells of say themselves how they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from edgewake.protocol.ops.part_status import SILENT_MS, SUPERVISED
from tests.ops.service import Ops, running
from tests.services import STAYS, Kafka, Process, free_ports, part, run_kafka, wait_until

ALONE = {SUPERVISED: ""}
SEQUENCER, ACCESS = "sequencer-1", "access-1"


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """One of our own: what is said of parts has a fixed topic."""
    with run_kafka(tmp_path_factory.mktemp("kafka"), *STAYS) as service:
        yield service


class Alone:
    """Operations, a sequencer and an access server without a supervisor."""

    def __init__(self, ops: Ops, parts: dict[str, Process]) -> None:
        self.ops, self.parts = ops, parts

    def told(self) -> dict[str, dict[str, Any]]:
        """What is listed of each part."""
        return {one["part"]: one for one in self.ops.client.get("/v1/parts").json()["items"]}

    def states(self) -> dict[str, str]:
        return {name: one["state"] for name, one in self.told().items()}

    def problems(self) -> dict[str, str]:
        """Part → what is wrong with it."""
        found = self.ops.client.get("/v1/overview").json()["problems"]
        return {one["name"]: one["text"] for one in found if one["kind"] == "part"}

    def raised(self) -> dict[str, str]:
        """Key → state of the alerts."""
        found = self.ops.client.get("/v1/raised").json()["items"]
        return {one["key"]: one["state"] for one in found}


@pytest.fixture
def alone(tmp_path: Path, own_kafka: Kafka) -> Iterator[Alone]:
    kafka = f'[kafka]\nbootstrap = "{own_kafka.bootstrap}"\n'
    (port,) = free_ports(1)
    texts = {"sequencer": "", "access": f"port = {port}\n"}
    with ExitStack() as stack:
        ops = stack.enter_context(running(own_kafka.bootstrap, tmp_path, env=ALONE))
        parts = {}
        for kind, name in (("sequencer", SEQUENCER), ("access", ACCESS)):
            config = tmp_path / f"{kind}.toml"
            config.write_text(f'name = "{name}"\n{texts[kind]}{kafka}')
            process = part(kind, config, tmp_path / f"{kind}.log", env=ALONE)
            parts[name] = stack.enter_context(process)
        found = Alone(ops, parts)
        ready = {"ops": "ready", SEQUENCER: "ready", ACCESS: "ready"}
        wait_until(lambda: found.states() == ready, "each says that it is ready")
        yield found


def test_parts_without_a_supervisor_tell_of_themselves_and_what_stops_is_a_problem(
    alone: Alone,
) -> None:
    told = alone.told()[SEQUENCER]
    assert (told["kind"], told["pid"]) == ("sequencer", alone.parts[SEQUENCER].pid)
    assert told["version"] == alone.told()["ops"]["version"]
    assert (told["host"], told["restarts"]) != (None, 0)
    hops = {one["name"]: one for one in alone.ops.client.get("/v1/overview").json()["hops"]}
    assert (hops["sequencer"]["state"], hops["sequencer"]["count"]) == ("well", 1)
    assert alone.problems() == {}
    alone.parts[SEQUENCER].stop()
    wait_until(alone.problems, "what was stopped is a problem")
    assert alone.problems() == {SEQUENCER: f"part {SEQUENCER} is stopped"}
    alone.parts[SEQUENCER].start()
    wait_until(lambda: not alone.problems(), "it is there again")
    assert set(alone.told()) == {"ops", SEQUENCER, ACCESS}


@pytest.mark.long
def test_a_part_that_was_killed_is_silent_a_problem_and_rings_until_it_is_back(
    alone: Alone,
) -> None:
    rule = {"problems": ["part"], "group_s": 0}
    answer = alone.ops.client.put("/v1/alerts/parts?version=0", json=rule)
    assert answer.is_success, answer.text
    alone.parts[ACCESS].kill()
    wait_until(alone.problems, "its silence is a problem")
    text = f"part {ACCESS}: it has said nothing for more than {SILENT_MS // 1000} s"
    assert alone.problems() == {ACCESS: text}
    assert alone.states() == {"ops": "ready", SEQUENCER: "ready", ACCESS: "silent"}
    wait_until(lambda: "firing" in alone.raised().values(), "the rule over parts rings")
    alone.parts[ACCESS].start()
    wait_until(lambda: not alone.problems(), "it is there again")
    wait_until(lambda: "firing" not in alone.raised().values(), "the alert is over")
