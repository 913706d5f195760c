"""`edgewake up --listen` with a second machine: a network of its own, and what runs in it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import ssl
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from edgewake.protocol.certificates import authority as authorities
from tests.chromium import chromium, open_page
from tests.deploy.test_up import descendants, port_base, running
from tests.edge.bad_wire import FarNetwork, far_network, needs_network
from tests.protocol.sparkplug.test_host import X, birth
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

    @property
    def folder(self) -> Path:
        """Where the second machine keeps whom it trusts."""
        return self.data.parent / "there"

    @property
    def trusted(self) -> str:
        return str(self.folder / "edgewake-ca.crt")

    @property
    def fingerprint(self) -> str:
        found = re.search(r"its fingerprint +([0-9a-f]{64})", self.said)
        assert found
        return found[1]

    def there(self, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command on the second machine."""
        return subprocess.run(
            ["ip", "netns", "exec", self.network.namespace, *command],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=cwd or self.folder,
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
        url = f"https://{self.network.near}:{port}{path}"
        given = ("-H", f"Authorization: Bearer {key}") if key else ()
        options = ("-s", "--cacert", self.trusted, "--max-time", "30", "-w", "\n%{http_code}")
        done = self.there("curl", *options, *given, *more, url)
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
            data,
            base,
            *ONLY,
            *("--listen", network.near, "--preset", "tasmota", "--sparkplug"),
            log=folder / "log",
        ) as process,
    ):
        process.wait_for("Ctrl-C stops everything.")
        found = Here(data, base, network, process)
        found.folder.mkdir()
        pasted = found.there("sh", "-c", printed_authority(found.said))
        assert pasted.returncode == 0, pasted.stderr
        yield found


pytestmark = [pytest.mark.services, needs_network]


def printed_authority(text: str) -> str:
    """What is to be pasted on the other machine."""
    found = re.search(r"^cat > edgewake-ca.crt <<END\n.*?^END$", text, re.DOTALL | re.MULTILINE)
    assert found
    return found[0]


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


def curl_line(text: str) -> str:
    return next(line.strip() for line in text.splitlines() if line.strip().startswith("curl --ca"))


def test_a_device_without_mqtt_sends_by_the_printed_line_until_it_is_revoked(here: Here) -> None:
    words = shlex.split(curl_line(here.said))

    def post(*words: str) -> tuple[int, str]:
        done = here.there(*words, "-s", "--max-time", "30", "-w", "\n%{http_code}")
        body, _, status = done.stdout.rpartition("\n")
        return int(status or 0), body

    assert post(*words) == (200, '{"taken":1,"refused":0}')
    wait_until(lambda: "device-1" in here.latest("hello"), "the reading is seen there")

    given = here.here("devices", "add", "curly", "--table")
    assert given.returncode == 0, given.stderr
    line = shlex.split(curl_line(given.stdout))
    wait_until(lambda: post(*line)[0] == 200, "the bridge knows it")
    wait_until(lambda: "curly" in here.latest("hello"), "it came by its own name")
    assert post(*[word.replace("/curly/", "/device-1/") for word in line])[0] == 403
    at = line.index("-u") + 1
    assert post(*line[: at - 1], *line[at + 1 :])[0] == 401
    wrong = [f"{word}x" if at == number else word for number, word in enumerate(line)]
    assert post(*wrong)[0] == 401
    unencrypted = [word.replace("https:", "http:") for word in line]
    assert post(*unencrypted)[0] == 0
    # A client of InfluxDB has one word for both.
    influx = [*line[:-3], "-H", f"Authorization: Token {line[at]}", "--data-binary"]
    influx[at - 1 : at + 1] = []
    url = f"https://{here.network.near}:{here.base + 12}/api/v2/write?bucket=b"
    assert post(*influx, "boil v=1.5", url)[0] == 204
    wait_until(lambda: "curly" in here.latest("boil"), "its line is seen")
    # What is here already is not asked, and may be anybody, as at the broker.
    near = f"http://127.0.0.1:{here.base + 12}/ew/v1/near/up/hello"
    assert httpx.post(near, content=b'{"temperature": 1}').status_code == 200
    assert here.here("devices", "revoke", "curly").returncode == 0
    wait_until(lambda: post(*line)[0] == 401, "it is shut out", timeout_s=60)


@pytest.mark.long
def test_a_device_of_thingsboard_gets_its_token_by_a_code_and_sends(here: Here) -> None:
    code = json.loads(here.here("devices", "claim", "--json", "--prefix", "tb-").stdout)["code"]
    at = ("-h", here.network.near, "-p", str(here.base + 13), "--cafile", here.trusted, "-q", "1")
    asks = json.dumps({"deviceName": "tb-oven", "provisionDeviceSecret": code})
    asked = here.there(
        "mosquitto_rr", *at, "-u", "provision", "-t", "/provision/request", "-e",
        "/provision/response", "-W", "30", "-m", asks,
    )  # fmt: skip
    assert asked.returncode == 0, asked.stderr
    token = json.loads(asked.stdout)["credentialsValue"]
    sends = ("mosquitto_pub", *at, "-t", "v1/devices/me/telemetry", "-m", '{"degrees": 180}')
    sent = here.there(*sends, "-u", token)
    assert sent.returncode == 0, sent.stderr
    wait_until(lambda: "tb-oven" in here.latest("thingsboard"), "it is seen by its own name")
    assert here.there(*sends, "-u", "tb-oven:wrong").returncode != 0


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
    trusting = ssl.create_default_context(cafile=here.trusted)
    own = httpx.get(f"https://{here.network.near}:{here.base}/v1/streams", verify=trusting)
    assert own.status_code == 401


async def test_the_phones_link_logs_its_page_in_and_leaves_no_key_in_the_address(
    here: Here,
) -> None:
    link = f"https://{here.network.near}:{here.base}/#key={here.key}"
    assert link in here.said
    assert await asyncio.to_thread(here.there, "sh", "-c", printed_line(here.said))
    async with chromium() as browser:
        page = await open_page(browser, ignore_https_errors=True)
        await page.goto(link)
        await page.wait_for_selector("#connection[data-state=live]")
        await page.wait_for_selector("text=hello")
        assert "key" not in page.url
        assert here.key not in await page.evaluate("document.cookie")
        assert all(cookie["secure"] for cookie in await page.context.cookies())
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
    with Process(listens, here.data.parent / "sub.log", cwd=here.folder) as connected:
        connected.wait_for("Subscribed")
        assert here.here("devices", "revoke", "boiler").returncode == 0
        wait_until(lambda: not connected.is_running(), "its connection was ended", timeout_s=60)
    assert here.there("sh", "-c", line).returncode != 0
    assert here.here("devices", "revoke", "boiler").returncode == 1
    again = here.here("devices", "add", "device-1")
    assert again.returncode == 1
    assert "has a password already" in again.stderr


@pytest.mark.long
def test_several_devices_are_shut_out_at_once(here: Here, tmp_path: Path) -> None:
    """One that has nothing is said, and keeps no other one in."""
    names = tmp_path / "names.csv"
    names.write_text("device,where\nfan-1,hall\nnobody,hall\nfan-2,hall\n")
    assert here.here("devices", "add", "fan-1", "fan-2").returncode == 0
    done = here.here("devices", "revoke", "--from", str(names))
    assert (done.returncode, done.stderr.count("worth nothing")) == (1, 2), done.stderr
    assert "nobody: " in done.stderr
    listed = json.loads(here.here("devices", "credentials", "--json").stdout)
    assert not {"fan-1", "fan-2"} & {row["device"] for row in listed}


@pytest.mark.long
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
        "mosquitto_pub", "-h", here.network.near, "-p", port, "--cafile", here.trusted,
        "-u", "pump-7", "-P", rows[7][1], "-t", "ew/v1/pump-7/up/pumps", "-q", "1",
        "-m", '{"x": 1}',
    )  # fmt: skip
    wait_until(lambda: here.there(*sent).returncode == 0, "the broker knows it")
    wait_until(lambda: "pump-7" in here.latest("pumps"), "it is seen")


def init_there(
    here: Here, folder: Path, device: str, code: str, fingerprint: str, file: str, *more: str
) -> subprocess.CompletedProcess[str]:
    """`edgewake-agent init` of the second machine, by a claim code."""
    return here.there(
        sys.executable, "-m", "edgewake.deploy.cli", "agent", "init", "--device", device,
        "--claim", code, "--server", f"https://{here.network.near}:{here.base + 2}",
        "--fingerprint", fingerprint, "--data-dir", str(folder / "log"), *more, file, cwd=folder,
    )  # fmt: skip


@pytest.mark.long
def test_an_agent_of_another_machine_comes_in_by_a_claim_code(here: Here, tmp_path: Path) -> None:
    claim = json.loads(here.here("devices", "claim", "--json", "--prefix", "shed").stdout)
    assert claim["fingerprint"] == here.fingerprint

    def init(device: str, code: str, file: str) -> subprocess.CompletedProcess[str]:
        return init_there(here, tmp_path, device, code, claim["fingerprint"], file)

    for device, code, says in (
        ("shed-1", "AAAA-BBBB", "this code is not known"),
        ("barn-1", claim["code"], "names that begin with 'shed'"),
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


def test_the_line_that_a_claim_code_comes_with_lets_the_device_in(here: Here) -> None:
    said = here.here("devices", "claim", "--count", "2", "--prefix", "line-", "--table").stdout
    line = next(one.strip() for one in said.splitlines() if "edgewake-agent init" in one)
    words = shlex.split(line)
    assert words.pop(0) == "edgewake-agent"
    done = here.there(*EDGEWAKE, "agent", *words)
    assert done.returncode == 0, done.stderr
    written = tomllib.loads((here.folder / "agent.toml").read_text())
    assert (written["device"], written["mqtt"]["username"]) == ("line-1", "line-1")
    assert here.fingerprint in said


@pytest.mark.long
def test_a_plug_that_speaks_in_its_own_words_is_seen_by_its_preset(here: Here) -> None:
    words = shlex.split(printed_line(here.said))
    login = words[1 : words.index("-q")]
    message = '{"Time":"2026-03-01T10:00:00","ENERGY":{"Power":3}}'
    sent = here.there("mosquitto_pub", *login, "-q", "1", "-t", "tele/plug/SENSOR", "-m", message)
    assert sent.returncode == 0, sent.stderr
    wait_until(lambda: "home-plug" in here.latest("tasmota_sensor"), "the plug is seen")


@pytest.mark.long
def test_a_node_of_sparkplug_finds_its_host_and_is_seen(here: Here) -> None:
    words = shlex.split(printed_line(here.said))
    login = words[1 : words.index("-q")]
    state = ("-t", "spBv1.0/STATE/edgewake", "-C", "1", "-W", "30")
    said = here.there("mosquitto_sub", *login, *state)
    assert json.loads(said.stdout)["online"] is True, said.stderr
    file = here.folder / "birth"
    file.write_bytes(birth(0, 0, X))
    topic = "spBv1.0/plant/NBIRTH/device-1"
    sent = here.there("mosquitto_pub", *login, "-q", "1", "-t", topic, "-f", str(file))
    assert sent.returncode == 0, sent.stderr
    wait_until(lambda: "home-plant.device-1" in here.latest("sparkplug"), "the node is seen")


def test_only_loopback_and_the_address_that_was_named_are_listened_on(here: Here) -> None:
    found = listening(here.process.pid)
    assert {address for address, _ in found} <= {*LOOPBACK, here.network.near}
    open_there = {port - here.base for address, port in found if address == here.network.near}
    # Page, operations API, push, the broker's two, HTTP for devices, ThingsBoard's MQTT; no Kafka,
    # no metrics.
    assert open_there == {0, 2, 3, 10, 11, 12, 13}


def certified(here: Here, device: str, folder: Path) -> list[str]:
    """The printed line of a device that was just given a certificate, as words."""
    given = here.here("devices", "add", device, "--certificate", "--out", str(folder), "--table")
    assert given.returncode == 0, given.stderr
    return shlex.split(printed_line(given.stdout))


def shown(words: list[str], cert: Path, key: Path) -> list[str]:
    """The same with another certificate."""
    at, also_at = words.index("--cert") + 1, words.index("--key") + 1
    other = list(words)
    other[at], other[also_at] = str(cert), str(key)
    return other


def post_certified(here: Here, words: list[str], device: str, *more: str) -> tuple[int, str]:
    """Send by HTTP with the certificate of a printed line."""
    files = [words[words.index(f"--{one}") + 1] for one in ("cert", "key")]
    shows = ("--cert", files[0], "--key", files[1])
    path = f"/ew/v1/{device}/up/web"
    return here.ask_there(here.base + 12, path, "", *shows, "-d", '{"x": 1}', *more)


@pytest.mark.long
def test_a_device_comes_in_by_a_certificate_whose_key_the_cloud_never_sees(
    here: Here, tmp_path: Path
) -> None:
    words = certified(here, "pump-c", tmp_path)
    sent = here.there(*words)
    assert sent.returncode == 0, sent.stderr
    wait_until(lambda: "pump-c" in here.latest("hello"), "it came by its own name")
    assert (tmp_path / "pump-c.key").stat().st_mode & 0o777 == 0o600
    secret = (tmp_path / "pump-c.key").read_text().split("\n")[1]
    files = [path for path in here.data.rglob("*") if path.is_file()]
    assert len(files) > 20
    assert [path for path in files if secret.encode() in path.read_bytes()] == []
    # In its own name only, and with a certificate alone.
    other = [word.replace("ew/v1/pump-c/", "ew/v1/device-9/") for word in words]
    here.there(*other)
    mine = [word.replace("/up/hello", "/up/after") for word in words]
    assert here.there(*mine).returncode == 0
    wait_until(lambda: "pump-c" in here.latest("after"), "what came after it is seen")
    assert "device-9" not in here.latest("hello")
    without = [*words[: words.index("--cert")], *words[words.index("--key") + 2 :]]
    assert here.there(*without).returncode != 0
    assert post_certified(here, words, "pump-c") == (200, '{"taken":1,"refused":0}')
    wait_until(lambda: "pump-c" in here.latest("web"), "it came by HTTP, too")
    assert post_certified(here, words, "device-9")[0] == 403
    again = here.here("devices", "add", "pump-c")
    assert "has a certificate already" in again.stderr


def test_strangers_and_what_is_out_of_time_are_refused_by_both_sides(
    here: Here, tmp_path: Path
) -> None:
    words = certified(here, "valve", tmp_path)
    assert here.there(*words).returncode == 0
    now = round(time.time() * 1000)
    years_ago = now - 3 * 365 * 86_400_000
    key = (tmp_path / "valve.key").read_text()
    request = authorities.checked_request(authorities.request(key, "valve"))
    ours = here.data / "authority" / "ca.key"
    stranger = authorities.new_key()
    for name, signs, when in (
        ("good", ours.read_text(), now),
        ("stranger", stranger, now),
        ("expired", ours.read_text(), years_ago),
    ):
        made = authorities.read(authorities.make(signs, now_ms=when), signs)
        issued = authorities.device(made, request, "valve", now_ms=when)
        assert (issued.until_ms < now) == (name == "expired")
        (tmp_path / f"{name}.crt").write_text(issued.pem)
        (tmp_path / f"{name}.ca").write_text(made.pem)
        sent = here.there(*shown(words, tmp_path / f"{name}.crt", tmp_path / "valve.key"))
        assert (sent.returncode == 0) == (name == "good"), (name, sent.stderr)
        other = shown(words, tmp_path / f"{name}.crt", tmp_path / "valve.key")
        # 401: our authority signed it, but the book has another one of this device.
        assert post_certified(here, other, "valve")[0] == (401 if name == "good" else 0), name
    # The device refuses a broker of another installation, too.
    at = words.index("--cafile") + 1
    misled = [*words[:at], str(tmp_path / "stranger.ca"), *words[at + 1 :]]
    assert here.there(*misled).returncode != 0


def test_what_is_not_encrypted_is_not_answered_there(here: Here) -> None:
    line = printed_line(here.said)
    assert here.there("sh", "-c", line).returncode == 0
    assert here.there("sh", "-c", line.replace("--cafile edgewake-ca.crt ", "")).returncode != 0
    for port in (0, 2, 3, 12):
        plain = f"http://{here.network.near}:{here.base + port}/healthz"
        assert here.there("curl", "-s", "--max-time", "10", plain).returncode != 0
    for port in (0, 2, 3):
        assert here.ask_there(here.base + port, "/healthz")[0] == 200
    found = here.there(
        "sh", "-c", f"openssl s_client -connect {here.network.near}:{here.base} </dev/null"
        " 2>/dev/null | openssl x509 -noout -fingerprint -sha256",
    )  # fmt: skip
    digits = found.stdout.partition("=")[2].strip().replace(":", "")
    assert digits
    assert digits in here.said.replace(" ", "")


@pytest.mark.long
def test_a_revoked_certificate_is_thrown_out_within_a_minute_and_stays_out(
    here: Here, tmp_path: Path
) -> None:
    words, calm = certified(here, "stolen", tmp_path), certified(here, "calm", tmp_path)
    assert here.there(*words).returncode == 0

    def connected(said: list[str], log: str) -> Process:
        login, device = said[1 : said.index("-q")], said[-3].split("/")[2]
        listens = ["stdbuf", "-oL", "mosquitto_sub", "-d", *login, "-t", f"ew/v1/{device}/ack"]
        return Process(["ip", "netns", "exec", here.network.namespace, *listens], tmp_path / log)

    with connected(words, "stolen.log") as thief, connected(calm, "calm.log") as other:
        thief.wait_for("Subscribed")
        other.wait_for("Subscribed")
        assert here.here("devices", "revoke", "stolen").returncode == 0
        wait_until(lambda: not thief.is_running(), "its connection was ended", timeout_s=60)
        assert "certificate revoked" in thief.output()
        assert other.is_running()
        assert other.output().count("sending CONNECT") == 1  # nobody else lost his connection
    assert post_certified(here, words, "stolen")[0] == 401
    assert post_certified(here, calm, "calm")[0] == 200
    assert here.there(*words).returncode != 0
    new = certified(here, "stolen", tmp_path / "new")
    assert here.there(*new).returncode == 0
    assert here.there(*words).returncode != 0
    # Once more: the broker believes the newest of the lists that it read.
    assert here.here("devices", "revoke", "stolen").returncode == 0
    wait_until(lambda: here.there(*new).returncode != 0, "the broker knows", timeout_s=60)
    assert here.there(*calm).returncode == 0


@pytest.mark.long
def test_a_fleet_gets_certificates_from_a_file(here: Here, tmp_path: Path) -> None:
    names = tmp_path / "names.csv"
    names.write_text("device\n" + "".join(f"meter-{i}\n" for i in range(120)))
    out = tmp_path / "out"
    done = here.here("devices", "add", "--from", str(names), "--certificate", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert len(list(out.glob("meter-*.crt"))) == len(list(out.glob("meter-*.key"))) == 120
    port = str(here.base + 11)
    sent = here.there(
        "mosquitto_pub", "-h", here.network.near, "-p", port, "--cafile", here.trusted, "--cert",
        str(out / "meter-119.crt"), "--key", str(out / "meter-119.key"), "-q", "1", "-t",
        "ew/v1/meter-119/up/meters", "-m", '{"x": 1}',
    )  # fmt: skip
    assert sent.returncode == 0, sent.stderr
    wait_until(lambda: "meter-119" in here.latest("meters"), "it is seen")


@pytest.mark.long
def test_an_agent_comes_in_by_a_code_with_a_key_of_its_own_and_loses_nothing_when_revoked(
    here: Here, tmp_path: Path
) -> None:
    claim = json.loads(here.here("devices", "claim", "--json", "--prefix", "hut").stdout)
    server = f"https://{here.network.near}:{here.base + 2}"
    for fingerprint, says in (("", "--fingerprint"), ("00" * 32, "it is another server")):
        given = (*(("--fingerprint", fingerprint) if fingerprint else ()), "--certificate")
        done = here.there(
            sys.executable, "-m", "edgewake.deploy.cli", "agent", "init", "--device", "hut",
            "--claim", claim["code"], "--server", server, *given, "hut.toml", cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 1
        assert says in done.stderr
    code, fingerprint = claim["code"], claim["fingerprint"]
    done = init_there(here, tmp_path, "hut", code, fingerprint, "hut.toml", "--certificate")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "hut.key").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "hut.password").exists()
    agent = [*EDGEWAKE, "agent", "--config", str(tmp_path / "hut.toml")]
    agent = ["ip", "netns", "exec", here.network.namespace, *agent]
    with Process(agent, tmp_path / "agent.log") as process:
        wait_until(lambda: "hut" in here.latest("host_metrics"), "its readings are seen")
        assert here.here("devices", "revoke", "hut").returncode == 0
        last = -1

        def is_silent() -> bool:
            nonlocal last
            before, last = last, int(str(here.latest("host_metrics")["hut"]["seq"]))
            time.sleep(6)  # longer than the agent's interval of 5 s: silence is what is measured
            return before == last

        wait_until(is_silent, "nothing of it comes any more", timeout_s=60)
        assert process.is_running()
        # The same key, a new certificate.
        request = here.there(
            "openssl", "req", "-new", "-key", "hut.key", "-subj", "/CN=x", cwd=tmp_path
        )
        (tmp_path / "hut.csr").write_text(request.stdout)
        given = here.here(
            "devices", "add", "hut", "--request", str(tmp_path / "hut.csr"), "--out", str(tmp_path)
        )
        assert given.returncode == 0, given.stderr
        process.stop()
    with Process(agent, tmp_path / "again.log"):
        wait_until(
            lambda: int(str(here.latest("host_metrics")["hut"]["seq"])) > last + 1,
            "what it kept has come, too",
        )
    status, body = here.ask_there(
        here.base, "/v1/streams/host_metrics/events?from=earliest&limit=1000", here.key
    )
    assert status == 200, body
    seqs = sorted(one["seq"] for one in json.loads(body)["events"] if one.get("device") == "hut")
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))


@pytest.mark.long
def test_plain_is_what_was_asked_for(here: Here, tmp_path: Path) -> None:
    base = port_base()
    only = ("--only", "mosquitto", "--only", "kafka", "--only", "ops")
    with running(
        tmp_path / "data", base, *only, "--listen", here.network.near, "--plain",
        log=tmp_path / "log",
    ) as process:  # fmt: skip
        process.wait_for("Ctrl-C stops everything.")
        plain = Here(tmp_path / "data", base, here.network, process)
        plain.folder.mkdir()
        assert "Nothing is encrypted there" in plain.said
        assert plain.there("sh", "-c", printed_line(plain.said)).returncode == 0
        refused = plain.here("devices", "add", "x", "--certificate", "--out", str(tmp_path))
        assert refused.returncode == 1
        assert "--plain" in refused.stderr
        assert not (plain.data / "authority").exists()


@pytest.mark.long
def test_without_listen_nothing_is_open_to_others(tmp_path: Path) -> None:
    base = port_base()
    with running(
        tmp_path / "data", base, "--only", "mosquitto", "--only", "kafka", "--only", "ops",
        "--only", "access", "--only", "push", "--only", "bridge", log=tmp_path / "log",
    ) as process:  # fmt: skip
        process.wait_for("Ctrl-C stops everything.")
        found = listening(process.pid)
        assert {address for address, _ in found} <= LOOPBACK
        assert {base, base + 2, base + 3, base + 10, base + 12} <= {port for _, port in found}
        door = re.search(r"HTTP for devices +(http://\S+)", process.output())
        assert door
        url = door[1].replace("<device>", "shed").replace("<stream>", "hello")
        wait_until(lambda: httpx.post(url, content=b'{"n": 1}').status_code == 200, "it is taken")
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
