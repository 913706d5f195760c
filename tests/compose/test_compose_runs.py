"""deploy/compose.yaml on a real engine: `make compose`.

All its services get healthy, as the file hardens them; a device sends through the broker with its
certificate, clients read through the proxy, each of the three Kafkas is killed in turn, and the
ledger finds nothing lost, nothing twice and nothing wrong.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from edgewake.simulators import faults
from edgewake.simulators.clients import Follower
from edgewake.simulators.ledger import Ledger
from tests.compose.engine import NoEngine, Site, engine, services
from tests.deploy.production import certificates
from tests.deploy.test_wheel import COMMANDS
from tests.services import Process, part, port_is_open, wait_until
from tests.story.feeder import Feeder
from tests.story.test_story import QUERY, SQL, STREAM, WINDOW_MS, Notes

if not os.environ.get("EDGEWAKE_COMPOSE"):
    pytest.skip("fourteen containers and their images: `make compose`", allow_module_level=True)

pytestmark = pytest.mark.timeout(3600)
DEVICE = "my-device"
WEB = "web"
"""The stream of what comes by HTTP."""
KAFKAS = ("kafka-1", "kafka-2", "kafka-3")
PAGE = "http://127.0.0.1:8700"
PORTS = {
    8443: "the proxy",
    8444: "the proxy",
    8700: "the proxy",
    8702: "the operations API",
    8883: "the broker",
}
HEALTHY_S = 900.0
"""Until all are: the first start of Spark beside fourteen others, each with a start of its own."""
PER_SECOND = 20.0
BEFORE, AFTER = 200, 200
"""Readings that clients must have been shown before the next Kafka dies, and while it is away."""
OF_A_TOPIC = """
import json
from pathlib import Path
from edgewake.cloud.kafka import clients
from edgewake.cloud.sequencer.config import SequencerConfig
from edgewake.protocol.config import load
from confluent_kafka.admin import ConfigResource, ResourceType
config = load(SequencerConfig, Path("/etc/edgewake/sequencer.toml")).kafka
admin = clients.admin(config)
found = {}
for name, topic in admin.list_topics(timeout=20).topics.items():
    resource = ConfigResource(ResourceType.TOPIC, name)
    [asked] = admin.describe_configs([resource]).values()
    partitions = topic.partitions.values()
    found[name] = [
        sorted({len(one.replicas) for one in partitions}),
        min(len(one.isrs) for one in partitions),
        asked.result(20)["min.insync.replicas"].value,
    ]
print(json.dumps(found))
"""
"""Topic → the numbers of its copies, the fewest in sync, and how many must be. Runs inside a part,
with its name and password."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("compose")
    folder.chmod(0o755)
    busy = [f"{port} ({what})" for port, what in PORTS.items() if port_is_open(port)]
    if busy:
        pytest.skip(f"in use on this machine: port {', '.join(busy)}")
    try:
        with engine(folder / "engine.log") as address:
            site = Site(address, folder)
            sys.stderr.write(site.make_images())
            done = certificates(
                site.certificates, "--bridge", "bridge-1", "--bridge", "bridge-2", DEVICE
            )
            assert done.returncode == 0, done.stderr
            site.own_certificates()
            try:
                site.up(HEALTHY_S)
                yield site
            finally:
                site.down()
    except NoEngine as reason:
        pytest.skip(str(reason))


def is_healthy(site: Site) -> bool:
    """All of them?"""
    return set(site.health().values()) == {"healthy"}


@pytest.fixture(scope="module")
def healthy(site: Site) -> Site:
    began = time.monotonic()
    try:
        wait_until(lambda: is_healthy(site), "all services are healthy", timeout_s=HEALTHY_S)
    except AssertionError:
        ill = [service for service, health in site.health().items() if health != "healthy"]
        pytest.fail(
            "\n".join(
                f"--- {service}: {site.health()[service]}\n{site.logs(service)}" for service in ill
            )
        )
    sys.stderr.write(f"compose: all healthy after {time.monotonic() - began:.0f} s\n")
    return site


def test_all_services_of_the_file_get_healthy(healthy: Site) -> None:
    assert set(healthy.health()) == services()


def test_no_container_has_a_capability_runs_as_root_or_can_write_its_files(healthy: Site) -> None:
    for service, container in healthy.containers().items():
        status = Path(f"/proc/{container['State']['Pid']}/status").read_text()
        told = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert {told[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {
            "0" * 16
        }, service
        assert told["NoNewPrivs"] == "1", service
        assert "0" not in told["Uid"].split(), service
        with pytest.raises(AssertionError, match="Read-only file system"):
            healthy.execute(service, "sh", "-c", "echo x > /etc/edgewake-was-here")


def topics(site: Site) -> dict[str, tuple[list[int], int, str]]:
    """Of Kafka, as the sequencer sees them."""
    return {
        name: tuple(told)
        for name, told in json.loads(site.execute("sequencer", "python", "-c", OF_A_TOPIC)).items()
    }  # type: ignore[misc]


def test_every_topic_has_three_copies_of_which_two_must_be_written(healthy: Site) -> None:
    found = topics(healthy)
    assert {"ew.up", "ew.sequence", "__consumer_offsets", "__transaction_state"} <= set(found)
    assert {(tuple(copies), needed) for copies, _, needed in found.values()} == {((3,), "2")}


def test_the_page_and_the_operations_api_answer_where_the_file_says(healthy: Site) -> None:
    assert "<html" in httpx.get(f"{PAGE}/").text
    trusted = str(healthy.certificates / "broker" / "devices-ca.crt")
    done = subprocess.run(
        ["curl", "-sS", "--cacert", trusted, "https://localhost:8443/"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "<html" in done.stdout, done.stderr
    assert httpx.get("http://127.0.0.1:8702/v1/devices").status_code == 401


OF_UP = {"logs", "login", "doctor"}
"""Commands for who runs `edgewake up`: here are containers in its place."""


@pytest.mark.parametrize("words", [one for one in COMMANDS if one[0] not in OF_UP], ids=" ".join)
def test_every_command_is_answered_in_the_image(healthy: Site, words: Sequence[str]) -> None:
    """With the key that the operations API has there."""
    who = "EDGEWAKE_OPS_URL=http://127.0.0.1:8702 EDGEWAKE_OPS_KEY=$(cat /run/secrets/ops.key)"
    asked = f'{who} timeout 60 edgewake {shlex.join(words)} 2>&1; echo "ended with $?"'
    said = healthy.execute("ops", "sh", "-c", asked)
    assert "Traceback" not in said
    assert "needs more libraries" not in said
    assert "is not part of this installation" not in said
    assert said.rstrip().endswith(("ended with 0", "ended with 1")), said


def agent(site: Site, folder: Path) -> Process:
    """A device on this machine, outside the containers, with its certificate."""
    files = {
        "ca_file": site.certificates / "broker" / "devices-ca.crt",
        "cert_file": site.certificates / "devices" / f"{DEVICE}.crt",
        "key_file": site.certificates / "devices" / f"{DEVICE}.key",
    }
    (folder / "in.jsonl").touch()
    (folder / "agent.toml").write_text(
        f'device = "{DEVICE}"\ndata_dir = "{folder}/agent"\n[mqtt]\nhost = "localhost"\nport = '
        "8883\n"
        + "".join(f'{name} = "{file}"\n' for name, file in files.items())
        + f'[[source]]\ntype = "file_tail"\nstream = "{STREAM}"\npath = '
        f'"{folder}/in.jsonl"\npoll_s = 0.05\n'
    )
    return part("agent", folder / "agent.toml", folder / "agent.log")


def add_query(site: Site, folder: Path) -> None:
    """The story's, through the operations API."""
    (folder / f"{QUERY}.sql").write_text(SQL)
    key = site.certificates / "keys" / "ops.key"
    command = [
        sys.executable,
        "-m",
        "edgewake.deploy.cli",
        "query",
        "--ops",
        "http://127.0.0.1:8702",
        "--key-file",
        str(key),
        "add",
    ]
    done = subprocess.run(
        [*command, str(folder / f"{QUERY}.sql"), "--wait", "600"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


async def until(condition: object, what: str) -> None:
    """Without holding up the clients."""
    await asyncio.to_thread(wait_until, condition, what, timeout_s=HEALTHY_S)  # type: ignore[arg-type]


async def kill(site: Site, service: str) -> None:
    """Kill -9 what runs in a container; the engine starts it again."""
    pid = site.pid(service)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: faults.state(pid) in ("", "Z"), f"{service} is dead")
    await until(lambda: site.pid(service) not in (0, pid), f"the engine started {service} again")


def post(site: Site, number: int) -> int:
    """Send a reading by HTTP, over TLS through the proxy; the status, 0 where nobody answered."""
    trusting = ssl.create_default_context(cafile=str(site.certificates / "broker/devices-ca.crt"))
    token = (site.certificates / "devices" / f"{DEVICE}.token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": f"web-{number}"}
    url = f"https://localhost:8444/ew/v1/{DEVICE}/up/{WEB}"
    try:
        return httpx.post(url, json={"n": number}, headers=headers, verify=trusting).status_code
    except httpx.TransportError:
        return 0


def posted(site: Site) -> list[float]:
    """What came of them, as a reader sees it through the proxy."""
    answer = httpx.get(f"{PAGE}/v1/streams/{WEB}/events?from=earliest&limit=100")
    if answer.status_code != 200:
        return []
    return [one["n"] for one in answer.json()["events"] if "n" in one]


async def story(site: Site, folder: Path) -> Ledger:
    """Send, read, kill each Kafka, and wait until everything is there."""
    ledger = Ledger()
    notes = Notes(ledger)
    server = ("127.0.0.1", 8700)
    raw = Follower("raw", [server], [STREAM], notes.on_event)
    windows = Follower("windows", [server], [STREAM, QUERY], notes.on_event)
    feeder = Feeder(ledger, {DEVICE: folder / "in.jsonl"}, per_second=PER_SECOND)
    feeding = asyncio.create_task(feeder.run())

    def shown() -> int:
        return len(ledger.deliveries["raw"])

    raw.wake()
    await until(lambda: shown() > BEFORE, "readings come through the proxy")
    await asyncio.to_thread(add_query, site, folder)
    windows.wake()
    await until(lambda: ledger.windows["windows"], "results come through the proxy")
    for service in KAFKAS:
        before, began = shown(), time.monotonic()
        await kill(site, service)
        number = KAFKAS.index(service)
        await until(
            lambda number=number: post(site, number) == 200,
            "a reading is taken by HTTP, sent again until it is",
        )
        await until(
            lambda before=before: shown() > before + AFTER,
            f"readings come on after {service} was killed",
        )
        sys.stderr.write(
            f"compose: killed {service}; {AFTER} more readings after "
            f"{time.monotonic() - began:.1f} s\n"
        )
        await until(lambda: is_healthy(site), "all are healthy again")
        await until(
            lambda: min(fewest for _, fewest, _ in topics(site).values()) == 3,
            "all copies are in sync again",
        )
    feeder.stop()
    await feeding
    for name in ("raw", "windows"):
        await until(lambda name=name: not ledger.missing(name), f"{name} has every reading")
    await until(
        lambda: not ledger.unfinished_windows("windows", WINDOW_MS),
        "every window has every reading",
    )
    numbers = [float(number) for number, _ in enumerate(KAFKAS)]
    await until(lambda: len(posted(site)) >= len(numbers), "what came by HTTP is read")
    assert posted(site) == numbers, "each once, however often it was sent"
    for client in (raw, windows):
        await client.sleep()
    return ledger


async def test_each_kafka_dies_once_and_the_ledger_finds_nothing_lost_twice_or_wrong(
    healthy: Site, tmp_path: Path
) -> None:
    starts = {service: healthy.containers()[service]["RestartCount"] for service in KAFKAS}
    with agent(healthy, tmp_path):
        ledger = await story(healthy, tmp_path)
    assert {
        service: healthy.containers()[service]["RestartCount"] - starts[service]
        for service in KAFKAS
    } == dict.fromkeys(KAFKAS, 1)
    verdict = ledger.judge(
        raw_clients=["raw", "windows"], window_clients=["windows"], window_ms=WINDOW_MS
    )
    sys.stderr.write(f"compose: {len(ledger.readings)} readings; {verdict.counts()}\n")
    assert len(ledger.readings) > 3 * (BEFORE + AFTER)
    assert verdict.clean, str(verdict)
