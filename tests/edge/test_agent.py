"""The agent as a process: command line, start, stop, status, memory."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from itertools import chain, repeat
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from edgewake.edge.commands.cli import agent as agent_command
from edgewake.edge.log.tables.schema import LOG_NAME, open_for_writing
from edgewake.edge.mqtt_link import CONNECT_TIMEOUT_S
from edgewake.edge.status import read_log
from edgewake.protocol.errors import LocalError, RejectReason
from edgewake.protocol.frames.ack import Ack, AckToken
from edgewake.protocol.frames.field_type import FieldType
from tests.edge.helpers import json_of
from tests.edge.peer import Peer, Taken
from tests.services import (
    PATIENCE_S,
    Mosquitto,
    Process,
    free_ports,
    part,
    run_mosquitto,
    wait_until,
)

READY = '"event":"part.ready"'
RESIDENT_MIB_MAX = 36
"""Against something heavy that is imported by mistake. `bench-edge` measures: 32 to 33, and now and
then a megabyte more on a busy machine."""


def config(
    directory: Path, port: int, device: str, sources: str = "", *, status_interval_s: float = 0.2
) -> Path:
    path = directory / "agent.toml"
    uplink = f"[uplink]\nstatus_interval_s = {status_interval_s}\n"
    path.write_text(
        f'device = "{device}"\ndata_dir = "{directory}/data"\n[mqtt]\nport = '
        f"{port}\n{uplink}{sources}",
        "utf-8",
    )
    return path


HOST = '[[source]]\ntype = "host_metrics"\nstream = "{stream}"\ninterval_s = 0.05\n'
STDIN = '[[source]]\ntype = "json_lines"\nstream = "lines"\n'


def edgewake(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "edgewake.deploy.cli", "agent", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / (1 << 20)


async def test_a_type_that_a_refusal_says_is_learnt_so_that_what_comes_next_passes(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    """Its first value was text, and an operator decided for numbers: it was refused for ever."""

    def values(taken: Taken) -> list[object]:
        return list(taken.frame.fields.get("v", ()))

    def answer(taken: Taken) -> Ack:
        if any(type(value) is str for value in values(taken)):
            decided = {"v": FieldType.NUMBER}
            return Ack(AckToken(0, 1, dead=True), RejectReason.FIELD_TYPE, "text", decided)
        return Ack(AckToken(0, 2))

    (port,) = free_ports(1)
    intake = f'[[source]]\ntype = "http_intake"\nstream = "posted"\nport = {port}\n'
    path = config(tmp_path, mosquitto.port, "agent-typed", intake)
    async with Peer(mosquitto.port, answer=answer) as peer:
        with part("agent", path, tmp_path / "out") as agent:
            agent.wait_for(READY)
            async with httpx.AsyncClient() as client, asyncio.timeout(PATIENCE_S):
                for body in chain([{"v": "warm"}], repeat({"v": 5})):
                    await client.post(f"http://127.0.0.1:{port}/", json=body)
                    if 5 in [value for taken in peer.taken for value in values(taken)]:
                        break
    assert values(peer.taken[0]) == ["warm"]


async def test_an_agent_measures_sends_says_how_it_is_and_stops_when_asked(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    path = config(tmp_path, mosquitto.port, "agent-1", HOST.format(stream="agent_1"))
    async with Peer(mosquitto.port) as peer:
        with part("agent", path, tmp_path / "out") as agent:
            agent.wait_for(READY)
            await peer.until(lambda: len(peer.kept.readings("agent-1", "agent_1")) >= 20)
            assert resident_mib(agent.pid) <= RESIDENT_MIB_MAX
            said = json_of(edgewake("status", "--config", path, "--json").stdout)
            assert (said["running"], said["connection"], said["device"]) == (
                True,
                "streaming",
                "agent-1",
            )
            table = edgewake("status", "--config", path).stdout
            assert f"running, pid {agent.pid}" in table
            assert agent.stop() == 0
    said = json_of(edgewake("status", "--config", path, "--json").stdout)
    assert said["running"] is False
    assert said["log"]["streams"]["agent_1"]["accepted"] >= 20  # type: ignore[index]


def test_its_status_knows_at_once_whether_it_is_connected(tmp_path: Path) -> None:
    """Otherwise it is written every `status_interval_s`: here it would be old for longer than the
    test waits.
    """
    with run_mosquitto(tmp_path / "mosquitto") as broker:
        path = config(tmp_path, broker.port, "agent-6", status_interval_s=10 * PATIENCE_S)

        def connection() -> object:
            return json_of(edgewake("status", "--config", path, "--json").stdout).get("connection")

        with part("agent", path, tmp_path / "out") as agent:
            agent.wait_for(READY)
            wait_until(lambda: connection() == "streaming", "its status has the connection")
            broker.process.kill()
            wait_until(
                lambda: connection() != "streaming", "its status has the end of the connection"
            )
            assert agent.stop() == 0


async def test_a_killed_agent_goes_on_with_what_it_had_accepted(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    """kill -9 while the cloud is silent; after the restart everything arrives, numbered without
    holes.
    """
    path = config(tmp_path, mosquitto.port, "agent-2", HOST.format(stream="agent_2"))
    async with Peer(mosquitto.port, answer=lambda _taken: None) as peer:
        agent = part("agent", path, tmp_path / "out").start()
        await peer.until(lambda: len(peer.taken) >= 20)
        agent.kill()
        waiting = json_of(edgewake("status", "--config", path, "--json").stdout)["log"][
            "backlog_readings"
        ]  # type: ignore[index]
        assert waiting >= 20
        assert '"kind":"frame"' in edgewake("log", "--config", path).stdout
        sent = [taken.message.body for taken in peer.taken]
    async with Peer(mosquitto.port) as peer:
        with agent:
            await peer.until(lambda: len(peer.kept.readings("agent-2", "agent_2")) > waiting)
        assert [taken.message.body for taken in peer.taken][: len(sent)] == sent


async def test_json_lines_on_standard_input_are_a_source(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    path = config(tmp_path, mosquitto.port, "agent-3", STDIN)
    async with Peer(mosquitto.port) as peer:
        agent = subprocess.Popen(
            [sys.executable, "-m", "edgewake.deploy.cli", "agent", "--config", path],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert agent.stdin is not None
        agent.stdin.write(b'{"n": 1}\nbad\n{"n": 2}\n')
        agent.stdin.flush()
        await peer.until(
            lambda: [row["n"] for row in peer.kept.readings("agent-3", "lines")] == [1, 2]
        )
        agent.stdin.close()
        agent.terminate()
        assert agent.wait(PATIENCE_S) == 0
    said = json_of(edgewake("status", "--config", path, "--json").stdout)
    assert said["latest"]["lines"]["n"] == 2, "also where the cloud has it"  # type: ignore[index]


def test_without_a_broker_it_accepts_and_waits(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    path = config(tmp_path, port, "agent-4", HOST.format(stream="s"))
    with part("agent", path, tmp_path / "out") as agent:
        agent.wait_for('"event":"uplink.offline"')
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            found = json_of(edgewake("status", "--config", path, "--json").stdout)
            if found["log"]["backlog_readings"] >= 10:  # type: ignore[index]
                break
        assert found["log"]["backlog_readings"] >= 10  # type: ignore[index]
        assert agent.is_running()


async def test_sources_that_fail_or_block_harm_neither_the_others_nor_the_stop(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    """A FIFO that nobody writes to, and a disk that is not there, beside a healthy source."""
    os.mkfifo(tmp_path / "in.fifo")
    sources = (
        f'[[source]]\ntype = "file_tail"\nstream = "fifo"\npath = "{tmp_path}/in.fifo"\n'
        + HOST.format(stream="usb").replace(
            "interval_s", 'disk_path = "/mnt/not-there"\ninterval_s'
        )
        + HOST.format(stream="agent_5")
    )
    path = config(tmp_path, mosquitto.port, "agent-5", sources)
    async with Peer(mosquitto.port) as peer:
        with part("agent", path, tmp_path / "out") as agent:
            agent.wait_for(READY)
            await peer.until(lambda: len(peer.kept.readings("agent-5", "agent_5")) >= 5)
            await peer.until(lambda: len(peer.kept.readings("agent-5", "usb")) >= 5)
            agent.wait_for('"event":"source.failed"')
            table = edgewake("status", "--config", path).stdout
            assert "not a regular file" in table
            assert agent.stop() == 0


def test_a_stop_while_connecting_is_obeyed_at_once(tmp_path: Path) -> None:
    """A broker that takes the connection and says nothing: the answer would be awaited for ten
    seconds.
    """
    with socket.create_server(("127.0.0.1", 0)) as silent:
        path = config(tmp_path, silent.getsockname()[1], "agent-6")
        with part("agent", path, tmp_path / "out") as agent:
            agent.wait_for(READY)
            connection, _ = silent.accept()
            with connection:
                assert agent.stop() == 0
            stopped = agent.output()
    assert '"event":"part.stopped"' in stopped
    assert _seconds_between(stopped, "part.stopping", "part.stopped") < CONNECT_TIMEOUT_S / 2


def _seconds_between(output: str, first: str, second: str) -> float:
    times: dict[object, int] = {
        line["event"]: line["time"] for line in map(json_of, output.splitlines()) if "event" in line
    }  # type: ignore[misc]
    return (times[second] - times[first]) / 1000


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('device = "d"\n', "data_dir: missing"),
        ('device = "d"\ndata_dir = "/tmp/x"\nlinger = 1\n', "linger: unknown key"),
        ("device = \n", "not TOML"),
    ],
)
@pytest.mark.parametrize("command", [[], ["check"], ["status"], ["log"]])
def test_a_wrong_configuration_ends_in_one_sentence_and_exit_2(
    tmp_path: Path, text: str, says: str, command: list[str]
) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    done = CliRunner().invoke(agent_command, [*command, "--config", str(path)])
    assert done.exit_code == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_check_says_what_the_configuration_means(tmp_path: Path) -> None:
    done = edgewake("check", "--config", config(tmp_path, 1883, "d", HOST.format(stream="s")))
    assert done.returncode == 0
    assert "host_metrics → s (ack)" in done.stdout


def test_status_of_an_agent_that_never_ran_says_so(tmp_path: Path) -> None:
    done = edgewake("status", "--config", config(tmp_path, 1883, "d"))
    assert done.returncode == 1
    assert "no event log yet" in done.stderr


def test_status_of_an_agent_that_is_just_making_its_log_says_so(tmp_path: Path) -> None:
    """It has tables before it has an epoch; who asked in between was told of a NoneType."""
    open_for_writing(tmp_path / LOG_NAME).close()
    with pytest.raises(
        LocalError, match="no epoch yet; an agent that is just starting writes it, ask again"
    ):
        read_log(tmp_path, now_ms=0)


def test_a_second_agent_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    path = config(tmp_path, port, "d")
    with part("agent", path, tmp_path / "out") as first:
        first.wait_for(READY)
        done = edgewake("--config", path)
        assert (done.returncode, "another agent" in done.stderr) == (1, True)


def test_a_log_that_is_no_database_is_set_aside_and_the_agent_measures_on(tmp_path: Path) -> None:
    path = config(tmp_path, *free_ports(1), "d", HOST.format(stream="s"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "events.db").write_bytes(b"this is not SQLite " * 100)
    with part("agent", path, tmp_path / "out") as agent:
        agent.wait_for(READY)
        wait_until(
            lambda: read_log(tmp_path / "data", now_ms=0)["backlog_readings"] >= 3, "it measures"
        )
        assert agent.stop() == 0
    assert (tmp_path / "data" / "events.db.foreign-1").read_bytes() == b"this is not SQLite " * 100


UV = Path(sys.executable).with_name("uv")
FOREIGN = (
    "pyspark",
    "confluent_kafka",
    "fastapi",
    "starlette",
    "uvicorn",
    "sqlite_utils",
    "httpx",
    "pandas",
    "numpy",
    "edgewake.cloud",
)
START_ONLY = (
    "annotated_types",
    "click",
    "ctypes",
    "email",
    "http",
    "importlib.metadata",
    "pydantic",
    "pydantic_core",
    "tomllib",
    "zipfile",
)
"""What checks the configuration and reads the command line."""
RARELY = (
    "pickle",
    "encodings.idna",
    "unicodedata",
    "edgewake.edge.actions.runner",
    "edgewake.edge.downlink.requests",
    "edgewake.edge.settings.settings",
    "edgewake.edge.settings.trial",
    "edgewake.edge.processors.processing",
    "edgewake.edge.processors.watching",
    "edgewake.edge.sketches.sketching",
    "edgewake.edge.program",
    "edgewake.edge.sketches.kinds",
)
"""What an agent without settings from the cloud, chains, rules, actions and sketches has no use
for."""


def test_what_runs_has_nothing_of_what_only_its_start_needs() -> None:
    code = (
        "import sys, edgewake.edge.run, edgewake.edge.sources.machines.host_metrics, "
        "edgewake.edge.sources.lines.json_lines\n"
        f"print(sorted(set(sys.modules) & set({START_ONLY + RARELY!r})))"
    )
    assert all(find_spec(name) for name in START_ONLY + RARELY), (
        "control: these are the names of modules"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )


def test_running_it_imports_nothing_of_the_cloud() -> None:
    code = (
        "import sys\nfrom edgewake.edge import agent, status\nfrom edgewake.edge.commands import "
        "cli\nfrom edgewake.edge.sources.lines import file_tail, "
        "json_lines\nfrom edgewake.edge.sources.machines import host_metrics\n"
        f"print(sorted(set(sys.modules) & set({FOREIGN!r})))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )


@pytest.mark.long
async def test_edgewake_edge_alone_installs_and_runs_in_a_fresh_environment(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    """The wheel with its `edge` extra only: no Spark, no Kafka, no web framework, and an agent that
    sends.
    """
    subprocess.run(
        [UV, "build", "--wheel", "--out-dir", tmp_path / "dist"], check=True, capture_output=True
    )
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run(
        [UV, "venv", "--python", sys.executable, tmp_path / "venv"], check=True, capture_output=True
    )
    subprocess.run(
        [
            UV,
            "pip",
            "install",
            "--compile-bytecode",
            "--python",
            python,
            f"edgewake[edge] @ file://{wheel}",
        ],
        check=True,
        capture_output=True,
    )
    installed = subprocess.run(
        [UV, "pip", "list", "--python", python], check=True, capture_output=True, text=True
    ).stdout
    for name in (
        "pyspark",
        "confluent-kafka",
        "fastapi",
        "starlette",
        "uvicorn",
        "httpx",
        "aiomqtt",
        "paho-mqtt",
    ):
        assert name not in installed
    path = config(tmp_path, mosquitto.port, "agent-5", HOST.format(stream="agent_5"))
    command = [str(python.with_name("edgewake")), "agent", "--config", str(path)]
    async with Peer(mosquitto.port) as peer:
        with Process(command, tmp_path / "out", cwd=tmp_path) as agent:
            agent.wait_for(READY)
            await peer.until(lambda: len(peer.kept.readings("agent-5", "agent_5")) >= 10)
            assert resident_mib(agent.pid) <= RESIDENT_MIB_MAX
            said = subprocess.run(
                [*command[:2], "status", "--config", path],
                capture_output=True,
                text=True,
                check=True,
                cwd=tmp_path,
            ).stdout
            assert "streaming" in said
            assert agent.stop() == 0
