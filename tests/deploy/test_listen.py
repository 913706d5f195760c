"""`edgewake up --listen` with a second machine: a network of its own, and what runs in it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from tests.chromium import chromium, open_page
from tests.deploy.test_up import descendants, port_base, running
from tests.edge.bad_wire import FarNetwork, far_network, needs_network
from tests.services import Process, wait_until

PARTS = ("mosquitto", "kafka", "bridge", "sequencer", "access", "push", "ops")
ONLY = tuple(word for part in PARTS for word in ("--only", part))
LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
EDGEWAKE = (sys.executable, "-m", "edgewake.deploy.cli")


@dataclass(frozen=True)
class Here:
    """A running `edgewake up --listen`, and the network in which others are."""

    data: Path
    base: int
    network: FarNetwork
    process: Process

    @property
    def said(self) -> str:
        return self.process.output()

    def there(self, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command on the second machine."""
        return subprocess.run(
            ["ip", "netns", "exec", self.network.namespace, *command],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=cwd,
        )

    def here(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of ours beside it."""
        return subprocess.run(
            [*EDGEWAKE, *command],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "EDGEWAKE_DATA": str(self.data)},
        )

    @property
    def key(self) -> str:
        found = re.search(r"#key=([0-9a-f]+)", self.said)
        assert found
        return found[1]

    def ask_there(self, port: int, path: str, key: str = "", *more: str) -> tuple[int, str]:
        """Status and body of a request of the second machine."""
        url = f"http://{self.network.near}:{port}{path}"
        given = ("-H", f"Authorization: Bearer {key}") if key else ()
        done = self.there(
            "curl", "-s", "--max-time", "30", "-w", "\n%{http_code}", *given, *more, url
        )
        body, _, status = done.stdout.rpartition("\n")
        return int(status), body

    def latest(self, stream: str) -> dict[str, dict[str, object]]:
        """The latest reading of each device, as the second machine sees it."""
        status, body = self.ask_there(self.base, f"/v1/latest/{stream}", self.key)
        return {one["device"]: one for one in json.loads(body)["rows"]} if status == 200 else {}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    folder = tmp_path_factory.mktemp("listen")
    base, data = port_base(), folder / "data"
    with (
        far_network() as network,
        running(
            data, base, *ONLY, "--listen", network.near, "--preset", "tasmota", log=folder / "log"
        ) as process,
    ):
        process.wait_for("Ctrl-C stops everything.")
        yield Here(data, base, network, process)


pytestmark = [pytest.mark.services, needs_network]


def printed_line(text: str) -> str:
    return next(line.strip() for line in text.splitlines() if "mosquitto_pub" in line)


def test_the_printed_line_sends_a_reading_from_another_machine_and_shows_it(here: Here) -> None:
    line = printed_line(here.said)
    sent = here.there("sh", "-c", line)
    assert sent.returncode == 0, sent.stderr
    wait_until(lambda: "device-1" in here.latest("hello"), "the reading is seen there")
    assert here.latest("hello")["device-1"]["temperature"] == 21.5

    words = shlex.split(line)
    password = words[words.index("-P") + 1]
    without = [*words[: words.index("-u")], *words[words.index("-P") + 2 :]]
    wrong = [("x" * len(word) if word == password else word) for word in words]
    assert here.there(*without).returncode != 0
    assert here.there(*wrong).returncode != 0


def test_a_device_writes_in_no_name_but_its_own(here: Here) -> None:
    words = shlex.split(printed_line(here.said))
    topic = next(word for word in words if word.startswith("ew/v1/"))
    other = [topic.replace("device-1", "device-2") if word == topic else word for word in words]
    assert here.there(*other).returncode == 0  # MQTT 3.1.1 is told nothing of a denied publish
    mine = ["ew/v1/device-1/up/after" if word == topic else word for word in words]
    assert here.there(*mine).returncode == 0
    wait_until(lambda: "device-1" in here.latest("after"), "what came after it is seen")
    assert "device-2" not in here.latest("hello")


def test_pages_streams_and_leases_need_the_key_there_and_none_here(here: Here) -> None:
    assert here.ask_there(here.base, "/v1/streams")[0] == 401
    assert here.ask_there(here.base, "/v1/streams", here.key)[0] == 200
    assert httpx.get(f"http://127.0.0.1:{here.base}/v1/streams").status_code == 200
    push, nothing = here.base + 3, ("--json", "{}")
    assert here.ask_there(push, "/v1/leases", "", *nothing)[0] == 401
    assert here.ask_there(push, "/v1/leases", here.key, *nothing)[0] == 422
    assert httpx.post(f"http://127.0.0.1:{push}/v1/leases", json={}).status_code == 422
    assert here.ask_there(here.base + 2, "/v1/devices")[0] == 401
    assert here.ask_there(here.base + 2, "/v1/devices", here.key)[0] == 401  # it reads, no more
    # This machine's own address of the network is no loopback.
    assert httpx.get(f"http://{here.network.near}:{here.base}/v1/streams").status_code == 401


async def test_the_phones_link_logs_its_page_in_and_leaves_no_key_in_the_address(
    here: Here,
) -> None:
    link = f"http://{here.network.near}:{here.base}/#key={here.key}"
    assert link in here.said
    assert await asyncio.to_thread(here.there, "sh", "-c", printed_line(here.said))
    async with chromium() as browser:
        page = await open_page(browser)
        await page.goto(link)
        await page.wait_for_selector("#connection[data-state=live]")
        await page.wait_for_selector("text=hello")
        assert "key" not in page.url
        assert here.key not in await page.evaluate("document.cookie")
        await page.close()


def test_a_device_is_added_and_revoked_within_a_minute_also_where_it_is_connected(
    here: Here,
) -> None:
    given = here.here("devices", "add", "boiler", "--table")
    assert given.returncode == 0, given.stderr
    line = printed_line(given.stdout)
    wait_until(lambda: here.there("sh", "-c", line).returncode == 0, "the broker knows it")
    wait_until(lambda: "boiler" in here.latest("hello"), "it came by its own name")
    words = shlex.split(line)
    login = words[1 : words.index("-q")]
    listens = ["stdbuf", "-oL", "mosquitto_sub", "-d", *login, "-t", "ew/v1/boiler/ack"]
    listens = ["ip", "netns", "exec", here.network.namespace, *listens]
    with Process(listens, here.data.parent / "sub.log") as connected:
        connected.wait_for("Subscribed")
        assert here.here("devices", "revoke", "boiler").returncode == 0
        wait_until(lambda: not connected.is_running(), "its connection was ended", timeout_s=60)
    assert here.there("sh", "-c", line).returncode != 0
    assert here.here("devices", "revoke", "boiler").returncode == 1
    again = here.here("devices", "add", "device-1")
    assert again.returncode == 1
    assert "has a password already" in again.stderr


def test_a_fleet_gets_its_passwords_from_a_file(here: Here, tmp_path: Path) -> None:
    names, out = tmp_path / "names.csv", tmp_path / "out.csv"
    names.write_text("device,where\n" + "".join(f"pump-{i},hall\n" for i in range(1200)))
    done = here.here("devices", "add", "--from", str(names), "--out", str(out))
    assert done.returncode == 0, done.stderr
    rows = [line.split(",") for line in out.read_text().splitlines()]
    assert [row[0] for row in rows] == [f"pump-{i}" for i in range(1200)]
    assert len({row[1] for row in rows}) == 1200
    assert out.stat().st_mode & 0o777 == 0o600
    port = str(here.base + 10)
    sent = (
        "mosquitto_pub", "-h", here.network.near, "-p", port, "-u", "pump-7", "-P", rows[7][1],
        "-t", "ew/v1/pump-7/up/pumps", "-q", "1", "-m", '{"x": 1}',
    )  # fmt: skip
    wait_until(lambda: here.there(*sent).returncode == 0, "the broker knows it")
    wait_until(lambda: "pump-7" in here.latest("pumps"), "it is seen")


def test_an_agent_of_another_machine_comes_in_by_a_claim_code(here: Here, tmp_path: Path) -> None:
    claim = json.loads(here.here("devices", "claim", "--json", "--prefix", "shed").stdout)
    server = f"http://{here.network.near}:{here.base + 2}"

    def init(device: str, code: str, file: str) -> subprocess.CompletedProcess[str]:
        return here.there(
            sys.executable, "-m", "edgewake.deploy.cli", "agent", "init", "--device", device,
            "--claim", code, "--server", server, "--data-dir", str(tmp_path / "log"), file,
            cwd=tmp_path,
        )  # fmt: skip

    for device, code, says in (
        ("shed-1", "AAAA-BBBB", "this code is not known"),
        ("barn-1", claim["code"], "names begin with 'shed'"),
        ("shed", claim["code"], ""),
        ("shed-2", claim["code"], "used up"),
    ):
        done = init(device, code, f"{device}.toml")
        assert (done.returncode == 0) == (not says), done.stderr
        assert says in done.stderr
        assert (tmp_path / f"{device}.toml").exists() == (not says)
    assert (tmp_path / "shed.password").stat().st_mode & 0o777 == 0o600
    agent = [*EDGEWAKE, "agent", "--config", str(tmp_path / "shed.toml")]
    with Process(
        ["ip", "netns", "exec", here.network.namespace, *agent], tmp_path / "agent.log"
    ) as process:
        wait_until(lambda: "shed" in here.latest("host_metrics"), "its readings are seen")
        assert process.is_running()


def test_a_plug_that_speaks_in_its_own_words_is_seen_by_its_preset(here: Here) -> None:
    words = shlex.split(printed_line(here.said))
    login = words[1 : words.index("-q")]
    message = '{"Time":"2026-03-01T10:00:00","ENERGY":{"Power":3}}'
    sent = here.there("mosquitto_pub", *login, "-q", "1", "-t", "tele/plug/SENSOR", "-m", message)
    assert sent.returncode == 0, sent.stderr
    wait_until(lambda: "home-plug" in here.latest("tasmota_sensor"), "the plug is seen")


def test_only_loopback_and_the_address_that_was_named_are_listened_on(here: Here) -> None:
    found = listening(here.process.pid)
    assert {address for address, _ in found} <= {*LOOPBACK, here.network.near}
    open_there = {port - here.base for address, port in found if address == here.network.near}
    assert open_there == {0, 2, 3, 10}  # page, operations API, push, broker; no Kafka, no metrics


def test_without_listen_nothing_is_open_to_others(tmp_path: Path) -> None:
    base = port_base()
    with running(
        tmp_path / "data", base, "--only", "mosquitto", "--only", "kafka", "--only", "ops",
        "--only", "access", "--only", "push", log=tmp_path / "log",
    ) as process:  # fmt: skip
        found = listening(process.pid)
        assert {address for address, _ in found} <= LOOPBACK
        assert {base, base + 2, base + 3, base + 10} <= {port for _, port in found}
        process.signal(signal.SIGINT)
        wait_until(lambda: not process.is_running(), "it ended")


def listening(pid: int) -> set[tuple[str, int]]:
    """Addresses and ports on which a process and those below it listen, with TCP."""
    found = set()
    for one in descendants(pid):
        try:
            connections = one.net_connections("tcp")
        except psutil.NoSuchProcess:
            continue
        found |= {(c.laddr.ip, c.laddr.port) for c in connections if c.status == "LISTEN"}
    return found
