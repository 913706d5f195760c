"""The demo as values."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import tomli_w

from edgewake.deploy.parts.part import Floor
from edgewake.deploy.plan import (
    SERVICES,
    Plan,
    Ports,
    check,
    config_file,
    configs,
    parts,
    ports_wanted,
)
from edgewake.protocol.errors import ConfigError


def plan(**more: object) -> Plan:
    """A plan with defaults."""
    return Plan(data=Path("/data"), ports=Ports(8700), **more)  # type: ignore[arg-type]


def test_every_service_is_planned_once() -> None:
    assert plan().names == (
        "mosquitto", "kafka", "bridge-1", "sequencer-1", "analysis", "lake", "access-1", "push-1",
        "ops", "agent", "simulators"
    )  # fmt: skip


@pytest.mark.parametrize("access_servers", range(1, 9))
def test_no_two_parts_want_one_port(access_servers: int) -> None:
    many = plan(access_servers=access_servers)
    also = ["kafka", "bridge-1"]  # its controller; metrics beside readings by HTTP
    assert sorted(ports_wanted(many).values()) == sorted(
        [name for name in many.names if name not in ("agent", "simulators")] + also
    )


def test_the_ports_are_the_promised_ones() -> None:
    wanted = {
        name: port
        for port, name in sorted(ports_wanted(plan(access_servers=2)).items(), reverse=True)
    }
    assert ports_wanted(plan())[8730] == "bridge-1"
    assert wanted == {
        "access-1": 8700, "access-2": 8701, "ops": 8702, "push-1": 8703, "mosquitto": 8710,
        "kafka": 8720,
        "bridge-1": 8712, "sequencer-1": 8731, "analysis": 8732, "lake": 8733,
    }  # fmt: skip


def test_only_takes_services_and_numbered_parts() -> None:
    assert plan(only=frozenset({"kafka", "access-2"}), access_servers=3).names == (
        "kafka",
        "access-2",
    )
    assert plan(only=frozenset({"access"}), access_servers=3).names == (
        "access-1",
        "access-2",
        "access-3",
    )


def test_only_with_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(
        ConfigError, match=rf"--only kafak: no such part; known are {', '.join(SERVICES)}"
    ):
        check(plan(only=frozenset({"kafak"})))


def test_an_empty_plan_is_refused() -> None:
    with pytest.raises(ConfigError, match="no part is left to start"):
        check(plan(only=frozenset({"simulators"}), simulators=False))


def test_every_part_with_a_configuration_is_told_of_its_file() -> None:
    many = plan(access_servers=2)
    commands = {
        part.name: part.command
        for part in parts(many, kafka=["k"], mosquitto=["m"], java_home=None)
    }
    for name in configs(many, None):
        assert commands[name][-2:] == ("--config", str(config_file(many, name)))
    assert {config_file(many, name).name for name in configs(many, None)} == {
        "bridge.toml", "sequencer.toml", "analysis.toml", "lake.toml", "access-1.toml",
        "access-2.toml", "push.toml", "ops.toml",
        "agent.toml",
    }  # fmt: skip


def test_faults_bring_a_ledger_and_links_and_nobody_else_has_them() -> None:
    assert "ledger" not in plan().names
    faulty = plan(faults=True)
    assert faulty.names[-1] == "ledger"
    links = {port for port, name in ports_wanted(faulty).items() if name == "ledger"}
    assert links == {8740, 8741, 8742, 8749}
    of_all, plain = configs(faulty, None), configs(plan(), None)
    assert of_all["agent"]["mqtt"]["port"] == faulty.ports.link("devices")
    assert of_all["bridge-1"]["mqtt"]["port"] == faulty.ports.link("bridge")
    assert of_all["ops"]["faults"]["port"] == faulty.ports.faults
    assert plain["agent"]["mqtt"]["port"] == plain["bridge-1"]["mqtt"]["port"] == 8710
    assert "faults" not in plain["ops"]


def test_sources_stop_first_and_the_broker_last() -> None:
    floors = {
        part.name: part.floor
        for part in parts(plan(), kafka=["k"], mosquitto=["m"], java_home=None)
    }
    assert [name for name, floor in floors.items() if floor is Floor.SOURCE] == [
        "agent",
        "simulators",
    ]
    order = ["agent", "bridge-1", "sequencer-1", "analysis", "access-1", "kafka", "mosquitto"]
    assert sorted(order, key=lambda name: floors[name]) == order


def test_every_configuration_can_be_written_as_toml() -> None:
    for values in configs(plan(access_servers=2), Path("/jars")).values():
        assert tomllib.loads(tomli_w.dumps(values)) == values
