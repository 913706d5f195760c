"""The compose file and its configurations, checked as far as they can be without its images."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.rights import reader_keys
from edgewake.cloud.rights.principal import Action
from edgewake.cloud.rights.roles import Roles
from edgewake.deploy import cli
from edgewake.deploy.programs import kafka_node
from edgewake.protocol.config import load
from tests.deploy.production import certificates

DEPLOY = Path(cli.__file__).resolve().parent
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
PARTS = {
    name: service for name, service in SERVICES.items() if service["image"].startswith("edgewake")
}
CERTIFICATES = "${EDGEWAKE_CERTIFICATES:-./compose/certs}"
"""How the file names the folder that certificates.sh made."""
MODELS = {
    "bridge": "edgewake.cloud.bridge.config:BridgeConfig",
    "sequencer": "edgewake.cloud.sequencer.config:SequencerConfig",
    "analysis": "edgewake.cloud.analysis.config:AnalysisConfig",
    "lake": "edgewake.cloud.lake.config:LakeConfig",
    "access": "edgewake.cloud.access.config:AccessConfig",
    "push": "edgewake.cloud.push.run:PushConfig",
    "ops": "edgewake.cloud.ops.run:OpsConfig",
}


def model(part: str) -> Any:
    """The configuration model of a part."""
    module, _, name = MODELS[part].partition(":")
    return getattr(import_module(module), name)


def settings(service: str) -> Any:
    """A service's configuration, read as the part itself reads it."""
    command, option, file = PARTS[service]["command"]
    assert option == "--config"
    return load(model(command), DEPLOY / "compose" / Path(file).name)


def test_there_are_the_parts_that_a_production_has() -> None:
    count = {
        command: sum(1 for part in PARTS.values() if part["command"][0] == command)
        for command in MODELS
    }
    assert count == {
        "bridge": 2,
        "sequencer": 1,
        "analysis": 1,
        "lake": 1,
        "access": 2,
        "push": 1,
        "ops": 1,
    }
    assert {"mosquitto", "kafka-1", "kafka-2", "kafka-3", "proxy"} <= set(SERVICES)


@pytest.mark.parametrize("service", PARTS)
def test_each_part_is_a_command_with_a_configuration_it_accepts(service: str) -> None:
    assert PARTS[service]["command"][0] in cli.HELP
    kafka: KafkaConfig = settings(service).kafka
    assert kafka.replication == 3
    assert kafka.bootstrap.split(",") == ["kafka-1:9092", "kafka-2:9092", "kafka-3:9092"]


def mounts(service: str) -> dict[PurePosixPath, str]:
    """What a container sees of the host: path inside to path outside."""
    secrets = [
        one if isinstance(one, dict) else {"source": one, "target": one}
        for one in SERVICES[service].get("secrets", [])
    ]
    found = {
        PurePosixPath("/run/secrets") / one["target"]: COMPOSE["secrets"][one["source"]]["file"]
        for one in secrets
    }
    for volume in SERVICES[service].get("volumes", []):
        source, target = re.fullmatch(r"(.+?):(/[^:]+)(?::ro)?", volume).groups()  # type: ignore[union-attr]
        found[PurePosixPath(target)] = source
    return found


@pytest.mark.parametrize("service", PARTS)
def test_every_file_a_part_reads_is_mounted_into_it(service: str) -> None:
    text = (DEPLOY / "compose" / Path(PARTS[service]["command"][2]).name).read_text()
    files = {PurePosixPath(path) for path in re.findall(r'= "(/[^"]+)"', text)} - {
        PurePosixPath("/opt/edgewake/spark-jars")
    }
    there = set(mounts(service))
    assert [file for file in files if not {file, file.parent} & there] == []


@pytest.mark.parametrize("service", PARTS)
def test_its_configuration_is_mounted(service: str) -> None:
    assert PurePosixPath(PARTS[service]["command"][2]) in mounts(service)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder deploy/ as it is after the steps of the file's header."""
    folder = tmp_path_factory.mktemp("host")
    names = ("--bridge", "bridge-1", "--bridge", "bridge-2", "my-device")
    done = certificates(folder / "compose" / "certs", *names)
    assert done.returncode == 0, done.stderr
    return folder


SECRETS: Mapping[str, set[str]] = {
    "mosquitto": {"broker/server.key"},
    "kafka-1": {"kafka/kafka-1.pem", "kafka/users.jaas"},
    "kafka-2": {"kafka/kafka-2.pem", "kafka/users.jaas"},
    "kafka-3": {"kafka/kafka-3.pem", "kafka/users.jaas"},
    "bridge-1": {
        "bridges/bridge-1.key", "keys/share.key", "kafka/bridge-1.password", "tokens/devices",
    },
    "bridge-2": {
        "bridges/bridge-2.key", "keys/share.key", "kafka/bridge-2.password", "tokens/devices",
    },
    "sequencer": {"kafka/sequencer.password"},
    "analysis": {"kafka/analysis.password"},
    "lake": {"kafka/lake.password"},
    "access-1": {"keys/cursor.key", "kafka/access-1.password"},
    "access-2": {"keys/cursor.key", "kafka/access-2.password"},
    "push": {
        "keys/cursor.key", "keys/lease.key", "keys/readers.key", "kafka/push.password",
    },
    "ops": {
        "keys/ops.key", "keys/ops-push.key", "keys/seal.key", "kafka/ops.password",
    },
    "proxy": {"front/server.key"},
}  # fmt: skip
"""Who reads which secret; who is not here reads none."""


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def test_every_container_sees_its_own_secrets_and_no_other(host: Path) -> None:
    """All that a container can read of the host, whether it is named as a file or lies below a
    folder that is.
    """
    folder = host / "compose" / "certs"
    secret = {
        path
        for path in folder.rglob("*")
        if path.suffix in {".key", ".password", ".jaas", ".token"}
        or path.parent.name == "tokens"
        or b"PRIVATE KEY" in _read(path)
    }
    assert {"ca.key", "cursor.key", "bridge-1.key", "kafka-1.pem", "users.jaas"} <= {
        path.name for path in secret
    }
    seen: dict[str, set[str]] = {}
    for service in SERVICES:
        sources = [
            host / source.replace(CERTIFICATES, "compose/certs")
            for source in mounts(service).values()
        ]
        readable = {
            path
            for path in secret
            for source in sources
            if path == source or source in path.parents
        }
        seen[service] = {str(path.relative_to(folder)) for path in readable}
    assert {service: keys for service, keys in seen.items() if keys} == SECRETS


def test_operations_show_the_push_proxy_a_key_that_it_knows(host: Path) -> None:
    """Deliveries that are made there belong to a name that stays: an address is another one after
    a start.
    """

    def read(service: str, path: Path) -> str:
        source = mounts(service)[PurePosixPath(path)].replace(CERTIFICATES, "compose/certs")
        return (host / source).read_text()

    shown, proxy = settings("ops").push, settings("push")
    keys = reader_keys.parse(read("push", proxy.rights.key_file), Roles(proxy.rights))
    principal = keys[sha256(read("ops", shown.key_file).strip().encode()).digest()]
    assert principal.name == "operations"
    assert all(principal.may(one, "vehicle_position") for one in (Action.READ, Action.WAKE))


def test_what_is_mounted_is_there(host: Path) -> None:
    for service in SERVICES:
        for source in mounts(service).values():
            if source.startswith(CERTIFICATES):
                assert (host / source.replace(CERTIFICATES, "compose/certs")).exists(), source
            elif source.startswith("./"):
                assert (DEPLOY / source).is_file(), source
            else:
                assert source in COMPOSE["volumes"]


def test_operations_and_analysis_read_the_lake_and_cannot_change_it() -> None:
    folder = PurePosixPath(settings("lake").data_dir)
    assert [PurePosixPath(settings(part).lake_dir) for part in ("ops", "analysis")] == [
        folder,
        folder,
    ]
    volumes = {
        service: [one for one in PARTS[service]["volumes"] if one.startswith("lake:")]
        for service in PARTS
    }
    read = [f"lake:{folder}:ro"]
    assert {service: found for service, found in volumes.items() if found} == {
        "lake": [f"lake:{folder}"],
        "ops": read,
        "analysis": read,
    }
    assert PARTS["ops"]["image"] == PARTS["lake"]["image"]


def test_names_differ_where_two_run_side_by_side() -> None:
    assert settings("bridge-1").name != settings("bridge-2").name
    assert settings("access-1").name != settings("access-2").name


def test_every_volume_network_and_secret_is_declared() -> None:
    for service in SERVICES.values():
        assert set(service.get("networks", [])) <= set(COMPOSE["networks"])
        secrets = {
            one["source"] if isinstance(one, dict) else one for one in service.get("secrets", [])
        }
        assert secrets <= set(COMPOSE["secrets"])
        assert set(service.get("depends_on", [])) <= set(SERVICES)


def test_kafka_survives_the_loss_of_one_broker() -> None:
    for i in (1, 2, 3):
        environment = SERVICES[f"kafka-{i}"]["environment"]
        assert (
            environment["KAFKA_DEFAULT_REPLICATION_FACTOR"],
            environment["KAFKA_MIN_INSYNC_REPLICAS"],
        ) == (3, 2)
        assert environment["KAFKA_UNCLEAN_LEADER_ELECTION_ENABLE"] == "false"
        assert environment["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
        assert environment["KAFKA_NODE_ID"] == i


def test_the_images_of_kafka_are_the_version_of_the_jars() -> None:
    assert SERVICES["kafka-1"]["image"].endswith(f":{kafka_node.VERSION}")


def test_kafka_runs_with_the_settings_that_all_tests_run_with() -> None:
    """Those that are no matter of one machine or several: times, sizes, who makes topics."""
    node = kafka_node.KafkaNode(
        java=Path(), jars=Path(), directory=Path(), port=9092, controller_port=9093
    )
    tested = {
        f"KAFKA_{name.upper().replace('.', '_')}": value
        for name, value in kafka_node.properties(node).items()
    }
    shipped = {name: str(value) for name, value in SERVICES["kafka-1"]["environment"].items()}
    of_one_machine = re.compile(
        r".*(FACTOR|MIN_ISR|VOTERS|LISTENERS|LISTENER_NAME|LOG_DIRS|NODE_ID|NUM_PARTITIONS)$"
    )
    sizes = {
        "KAFKA_LOG_CLEANER_DEDUPE_BUFFER_SIZE",
        "KAFKA_NUM_NETWORK_THREADS",
        "KAFKA_NUM_IO_THREADS",
        "KAFKA_BACKGROUND_THREADS",
    }
    single = {
        f"KAFKA_{name}"
        for name in (
            "BROKER_SESSION_TIMEOUT_MS",
            "BROKER_HEARTBEAT_INTERVAL_MS",
            "METADATA_MAX_IDLE_INTERVAL_MS",
            "DELETE_TOPIC_ENABLE",
        )
    }
    common = {
        name: value
        for name, value in tested.items()
        if not of_one_machine.match(name) and name not in sizes | single
    }
    assert {name: shipped.get(name) for name in common} == common


def test_the_file_follows_the_compose_specification() -> None:
    command = [
        str(Path(sys.executable).with_name("check-jsonschema")),
        "--builtin-schema",
        "vendor.compose-spec",
        DEPLOY / "compose.yaml",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_same_check_refuses_a_file_that_does_not(tmp_path: Path) -> None:
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(
        (DEPLOY / "compose.yaml")
        .read_text()
        .replace("restart: unless-stopped", "restart: [always]")
    )
    command = [
        str(Path(sys.executable).with_name("check-jsonschema")),
        "--builtin-schema",
        "vendor.compose-spec",
        wrong,
    ]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1


@pytest.mark.parametrize("service", SERVICES)
def test_every_container_is_looked_after_and_bounded(service: str) -> None:
    one = SERVICES[service]
    assert one["healthcheck"]["test"]
    assert one["mem_limit"]
    assert one["logging"]["options"]["max-size"]
    assert one["restart"] == "unless-stopped"
    assert (
        re.search(r":\d+\.\d+(\.\d+)?", one["image"])
        or one["build"]["dockerfile"] == "deploy/Dockerfile"
    )


@pytest.mark.parametrize("service", SERVICES)
def test_no_container_can_write_its_files_or_has_a_capability(service: str) -> None:
    one = SERVICES[service]
    assert (one["read_only"], one["cap_drop"], one["security_opt"]) == (
        True,
        ["ALL"],
        ["no-new-privileges:true"],
    )
    assert "cap_add" not in one
    assert not one.get("privileged")


@pytest.mark.parametrize("service", PARTS)
def test_the_health_check_asks_where_the_part_answers(service: str) -> None:
    one = settings(service)
    port = one.metrics_port if hasattr(one, "metrics_port") else one.port
    host = one.metrics_host if hasattr(one, "metrics_host") else one.host
    assert (PARTS[service]["environment"]["HEALTH_PORT"], host) == (port, "0.0.0.0"), (
        "Prometheus scrapes the same address"
    )


def test_only_what_is_for_others_has_a_port_outside() -> None:
    ports = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert ports == {
        "mosquitto": ["8883:8883"],
        "ops": ["127.0.0.1:8702:8702"],
        "proxy": ["8443:8443", "8444:8444", "127.0.0.1:8700:8700"],
    }
    networks = {name: set(service["networks"]) for name, service in SERVICES.items()}
    assert {name for name in networks if "devices" in networks[name]} == {
        "mosquitto",
        "bridge-1",
        "bridge-2",
    }
    assert networks["proxy"] == {"front"}


def test_the_proxy_passes_events_on_as_they_come() -> None:
    text = (DEPLOY / "compose" / "nginx.conf").read_text()
    assert "proxy_buffering off;" in text
    ports = {f"access-{i}:{settings(f'access-{i}').port}" for i in (1, 2)} | {
        f"push:{settings('push').port}",
        *(f"{name}:{settings(name).http.port}" for name in ("bridge-1", "bridge-2")),
    }
    assert set(re.findall(r"server (\S+:\d+) resolve", text)) == ports


def test_nginx_accepts_the_file(host: Path, tmp_path: Path) -> None:
    """`resolve` is of 1.27.3 and newer; Debian's nginx is asked about all the rest, with the names
    of the servers known.
    """
    text = (DEPLOY / "compose" / "nginx.conf").read_text()
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    assert nginx, "nginx is missing: python -m tests.needs"
    version = subprocess.run([nginx, "-v"], capture_output=True, text=True, check=True).stderr
    if tuple(map(int, re.search(r"(\d+)\.(\d+)\.(\d+)", version).groups())) < (1, 27, 3):  # type: ignore[union-attr]
        text = re.sub(r"server (\S+) resolve", r"server \1", text).replace("http2 on;", "")
    text = text.replace(" /tmp/", f" {tmp_path}/")
    for inside, source in mounts("proxy").items():
        text = text.replace(
            f"{inside};", f"{host / source.replace(CERTIFICATES, 'compose/certs')};"
        )
    text = re.sub(r"server (access-\d|bridge-\d|push):", "server 127.0.0.1:", text)
    (tmp_path / "nginx.conf").write_text(text)
    done = subprocess.run(
        [nginx, "-t", "-p", tmp_path, "-c", tmp_path / "nginx.conf"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# The image


def _ignored(path: PurePosixPath, rules: list[str]) -> bool:
    """Does .dockerignore leave a path out? The last rule that matches it or a folder of it decides,
    as the builder has it.
    """
    ignored = False
    for rule in rules:
        pattern, is_exception = rule.removeprefix("!"), rule.startswith("!")
        expression = re.escape(pattern).replace(r"\*\*/", "(.*/)?").replace(r"\*", "[^/]*")
        if any(re.fullmatch(expression, str(part)) for part in (path, *path.parents)):
            ignored = not is_exception
    return ignored


def build_context(root: Path) -> set[PurePosixPath]:
    """The files that the builder is sent."""
    lines = (DEPLOY.parent / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    files = {PurePosixPath(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    return {path for path in files if not _ignored(path, rules)}


@cache
def _sources() -> Mapping[str, bytes]:
    listed = subprocess.run(
        ["git", "-C", DEPLOY.parent, "ls-files", "-z"], capture_output=True, check=True
    ).stdout.decode()
    return {
        name: (DEPLOY.parent / name).read_bytes()
        for name in listed.split("\0")
        if name and (DEPLOY.parent / name).is_file()
    }


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout in which somebody has worked: certificates where the header makes them, data, an
    environment, notes.
    """
    root = tmp_path_factory.mktemp("checkout")
    left = {
        ".env": b"PASSWORD=x",
        "data/secrets/ops.key": b"ew_x",
        "deploy/my.key": b"x",
        "cloud/__pycache__/x.pyc": b"x",
        "notes.txt": b"x",
    }
    for name, content in (dict(_sources()) | left).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    for link in (DEPLOY.parent / "edgewake").iterdir():
        if link.is_symlink():
            (root / "edgewake" / link.name).symlink_to(link.readlink())
    done = certificates(root / "deploy" / "compose" / "certs", "--bridge", "bridge-1", "my-device")
    assert done.returncode == 0, done.stderr
    return root


def test_no_key_and_no_data_is_sent_to_the_builder(checkout: Path) -> None:
    context = build_context(checkout)
    tops = {path.parts[0] for path in context}
    assert tops == {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "edgewake",
        "protocol",
        "edge",
        "cloud",
        "simulators",
        "deploy",
    }
    assert {path for path in context if str(path) not in _sources()} == set()
    assert not any(
        b"PRIVATE KEY" in (checkout / path).read_bytes()
        for path in context
        if path.suffix not in {".py", ".md"}
    )


def test_the_builder_is_sent_everything_that_the_dockerfile_copies(checkout: Path) -> None:
    context = build_context(checkout)
    copied = re.findall(
        r"^COPY (?!--from)(.+) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE
    )
    sources = [source.rstrip("/") for line in copied for source in line.split()]
    assert sources
    for source in sources:
        assert any(str(path) == source or source in map(str, path.parents) for path in context), (
            source
        )


def test_a_wheel_built_without_git_holds_no_key(checkout: Path, tmp_path: Path) -> None:
    """As in an image, where .gitignore is not: what lies in the folder must still not be packed."""
    (checkout / ".gitignore").unlink()
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=checkout, check=True, capture_output=True, env=os.environ)
    listed = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", next(tmp_path.glob("*.whl"))],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "deploy/compose.yaml" in listed.stdout
    assert [line for line in listed.stdout.splitlines() if "certs" in line] == []


def test_the_images_hold_no_requirement_of_the_demo() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    assert "demo" not in text
    servers = (DEPLOY / "requirements" / "traces.txt").read_text()
    assert not re.search(r"^(pyspark|pyarrow|jgo|paho-mqtt|aiomqtt)==", servers, re.MULTILINE)
    assert set(re.findall(r"requirements/(\w+)\.txt", text)) == {
        "build",
        "traces",
        "analysis",
        "lake",
    }


@pytest.mark.parametrize(
    "part",
    [
        "bridge.bridge",
        "sequencer.sequencer",
        pytest.param("access.run", marks=pytest.mark.long),
        pytest.param("push.run", marks=pytest.mark.long),
        "ops.run",
    ],
)
def test_the_servers_need_no_library_of_the_analysis(part: str) -> None:
    code = (
        "import sys\nfor name in ('pyspark', 'pyarrow', 'jgo'): sys.modules[name] = None\nimport "
        f"edgewake.cloud.{part}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
