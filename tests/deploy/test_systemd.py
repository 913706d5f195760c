"""The systemd units."""

from __future__ import annotations

import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from edgewake.deploy import cli
from edgewake.protocol.heartbeat import INTERVAL_S

UNITS = Path(cli.__file__).resolve().parent / "systemd"


def unit(name: str) -> ConfigParser:
    """A unit, parsed."""
    parser = ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((UNITS / name).read_text())
    return parser


@pytest.mark.parametrize(
    "name", ["edgewake-agent.service", "edgewake@.service", "edgewake-kafka.service"]
)
def test_systemd_accepts_the_unit(name: str, tmp_path: Path) -> None:
    """With the command's path made ours, since systemd wants it to exist."""
    assert shutil.which("systemd-analyze"), "systemd-analyze is missing: apt-get install systemd"
    instance = tmp_path / name.replace("@", "@bridge")
    edgewake = Path(sys.executable).with_name("edgewake")
    instance.write_text(
        (UNITS / name).read_text().replace("/opt/edgewake/bin/edgewake", str(edgewake))
    )
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", instance],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (
        done.returncode,
        [line for line in done.stderr.splitlines() if instance.name in line],
    ) == (0, [])


def test_an_agent_with_a_serial_port_sees_it_and_is_still_hardened(tmp_path: Path) -> None:
    """`PrivateDevices` would give it a /dev without any port, whatever `DeviceAllow` says."""
    agent, serial = (
        unit("edgewake-agent.service")["Service"],
        unit("edgewake-agent-serial.conf")["Service"],
    )
    assert (agent["PrivateDevices"], serial["PrivateDevices"], serial["DevicePolicy"]) == (
        "yes",
        "no",
        "closed",
    )
    instance = tmp_path / "edgewake-agent.service"
    shutil.copy(UNITS / instance.name, instance)
    (tmp_path / f"{instance.name}.d").mkdir()
    shutil.copy(
        UNITS / "edgewake-agent-serial.conf", tmp_path / f"{instance.name}.d" / "serial.conf"
    )
    told = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=25", instance],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout[-300:]
    assert (
        "PrivateDevices=                                             Service potentially has"
        in told.stdout
    ), "the drop-in was read"


def test_the_documented_steps_leave_a_configuration_that_the_units_user_can_read(
    tmp_path: Path,
) -> None:
    """`init` writes it for root alone, and the agent under systemd is somebody else."""
    assert unit("edgewake-agent.service")["Service"]["DynamicUser"] == "yes"
    where, steps = (
        "/etc/edgewake/agent.toml",
        (UNITS.parents[1] / "docs/agent.md").read_text().partition("## On a Raspberry Pi")[2],
    )
    written = tmp_path / "agent.toml"
    words = ["init", str(written), "--device", "pi", "--broker", "127.0.0.1:1883"]
    assert (
        subprocess.run(
            [Path(sys.executable).with_name("edgewake-agent"), *words], check=False
        ).returncode
        == 0
    )
    said = next(line for line in steps.splitlines() if "chmod" in line and where in line).partition(
        "#"
    )[0]
    subprocess.run(
        ["sh", "-c", said.removeprefix("sudo ").replace(where, str(written))], check=True
    )
    assert written.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("name", ["edgewake-agent.service", "edgewake@.service"])
def test_what_is_started_is_a_command_of_ours(name: str) -> None:
    words = unit(name)["Service"]["ExecStart"].replace("%i", "bridge").split()
    assert words[1] in cli.HELP
    assert words[2:] == ["--config", f"/etc/edgewake/{words[1]}.toml"]


@pytest.mark.parametrize("name", ["edgewake-agent.service", "edgewake@.service"])
def test_a_wrong_configuration_is_not_tried_again_and_everything_else_is(name: str) -> None:
    service = unit(name)["Service"]
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("always", "2")


@pytest.mark.parametrize("name", ["edgewake-agent.service", "edgewake@.service"])
def test_nothing_is_ever_given_up_nor_left_hanging(name: str) -> None:
    """The one may be far away, the other wait for a disk or for Kafka; what hangs gives no sign of
    life.
    """
    assert unit(name)["Unit"]["StartLimitIntervalSec"] == "0"
    assert float(unit(name)["Service"]["WatchdogSec"]) >= 10 * INTERVAL_S


@pytest.mark.parametrize(
    ("name", "worst"),
    [("edgewake-agent.service", 20), ("edgewake@.service", 30), ("edgewake-kafka.service", 30)],
)
def test_the_unit_is_hardened(name: str, worst: int) -> None:
    """systemd's own measure of exposure, in tenths: 100 is a unit without any protection."""
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={worst}", UNITS / name],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-300:]
