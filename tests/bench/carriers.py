"""What carries readings from a device's broker to the cloud's: our agent, Mosquitto as a bridge,
ThingsBoard's gateway; a process each.
"""

from __future__ import annotations

import json
import subprocess
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from edgewake.deploy.programs import mosquitto
from tests.services import Process, free_ports, part, port_is_open, run_mosquitto, wait_until

GATEWAY: Final = "thingsboard-gateway==3.8.5"
INSTALL_S: Final = 300
TOPIC: Final = "local/speed"
ASKED: Final = "v1/devices/me/rpc/request/"
ANSWERED: Final = "v1/devices/me/rpc/response/"
NO_LIMITS: Final = {
    "rateLimits": {},
    "gatewayRateLimits": {},
    "maxInflightMessages": 0,
    "maxPayloadSize": 65_536,
}
"""What a ThingsBoard without limits answers to the gateway's first question, without which it sends
nothing."""


@dataclass
class Carrier:
    """One of the three: how it is started, and what a message of it in the cloud says."""

    name: str
    process: Process
    local_port: int
    numbers: Callable[[bytes], list[int]]


AGENT = """
device = "bench"
data_dir = "{folder}/data"
[mqtt]
port = {cloud}
[[source]]
type = "mqtt_subscribe"
stream = "speed"
topic = "local/speed"
[source.broker]
port = {local}
"""


@contextmanager
def agent(folder: Path, cloud: int) -> Iterator[Carrier]:
    """Ours."""
    with run_mosquitto(folder / "local") as local:
        config = folder / "agent.toml"
        config.write_text(AGENT.format(folder=folder, cloud=cloud, local=local.port))
        with part("agent", config, folder / "agent.log") as process:
            yield Carrier("edgewake agent", process, local.port, lambda _: [])


@contextmanager
def bridge(folder: Path, cloud: int) -> Iterator[Carrier]:
    """The local broker itself, which is killed."""
    (port,) = free_ports(1)
    broker = mosquitto.Broker(program=mosquitto.ensure(), directory=folder, port=port)
    mosquitto.prepare(broker)
    file = folder / "mosquitto.conf"
    kept = [
        line
        for line in file.read_text().splitlines()
        if line.split()[0] not in ("max_queued_messages", "max_queued_bytes", "autosave_interval")
    ]
    more = [
        "max_queued_messages 0",
        "max_queued_bytes 0",
        "autosave_interval 1",
        "connection cloud",
        f"address 127.0.0.1:{cloud}",
    ]
    more += [
        "topic local/# out 1",
        "cleansession false",
        "keepalive_interval 5",
        "restart_timeout 1",
        "try_private true",
        "bridge_protocol_version mqttv311",
    ]
    file.write_text("\n".join([*kept, *more, ""]))
    with Process(mosquitto.command(broker), folder / "mosquitto.log") as process:
        wait_until(lambda: port_is_open(port), "the bridge takes connections")
        yield Carrier(
            "mosquitto bridge", process, port, lambda payload: [orjson.loads(payload)["n"]]
        )


def gateway_settings(folder: Path, cloud: int, local: int) -> dict[str, object]:
    """The files of its configuration."""
    main = {
        "thingsboard": {
            "host": "127.0.0.1", "port": cloud, "remoteShell": False, "remoteConfiguration": False,
            "qos": 1,
            "statistics": {"enable": False}, "deviceFiltering": {"enable": False},
            "security": {"type": "accessToken", "accessToken": "bench"},
            "minPackSendDelayMS": 0, "minPackSizeToSend": 1, "maxPayloadSizeBytes": 65_536,
            "reportStrategy": {"type": "ON_RECEIVED"},
            "rateLimits": "0:0,", "dpRateLimits": "0:0,", "messagesRateLimits": "0:0,",
            "deviceMessagesRateLimits": "0:0,",
            "deviceRateLimits": "0:0,", "deviceDpRateLimits": "0:0,",
        },
        "storage": {"type": "sqlite", "data_file_path": f"{folder}/store/",
            "messages_ttl_check_in_hours": 1, "messages_ttl_in_days": 7},
        "grpc": {"enabled": False},
        "connectors": [{"name": "local", "type": "mqtt", "configuration": "mqtt.json",
            "logLevel": "ERROR"}],
    }  # fmt: skip
    fields = [
        {"type": kind, "key": key, "value": f"${{{key}}}", "tsField": "${ts}"}
        for kind, key in (("integer", "n"), ("double", "speed_kmh"), ("string", "state"))
    ]
    device = {
        "deviceNameExpressionSource": "constant",
        "deviceNameExpression": "bench",
        "deviceProfileExpressionSource": "constant",
        "deviceProfileExpression": "default",
    }
    connector = {
        "broker": {
            "host": "127.0.0.1", "port": local, "clientId": "gateway", "version": 5,
            "maxMessageNumberPerWorker": 10, "maxNumberOfWorkers": 100,
            "cleanSession": False, "cleanStart": False, "sessionExpiryInterval": 86_400,
            "security": {"type": "anonymous"},
        },
        "mapping": [
            {
                "topicFilter": TOPIC, "subscriptionQos": 1,
                "converter": {
                    "type": "json", "deviceInfo": device, "sendDataOnlyOnChange": False,
                    "timeout": 60_000,
                    "attributes": [], "timeseries": fields,
                },
            }
        ],
    }  # fmt: skip
    return {"tb_gateway.json": main, "mqtt.json": connector, "logs.json": LOGS}


LOGS: Final = {
    "version": 1,
    "formatters": {
        "plain": {
            "class": "logging.Formatter",
            "format": "%(asctime)s %(levelname)s %(name)s %(message)s",
        }
    },
    "handlers": {
        "consoleHandler": {
            "class": "logging.StreamHandler",
            "formatter": "plain",
            "level": "WARNING",
        }
    },
    "root": {"level": "WARNING", "handlers": ["consoleHandler"]},
    "loggers": {
        name: {"level": "WARNING", "handlers": ["consoleHandler"]}
        for name in ("service", "storage", "tb_connection", "connector", "converter", "database")
    },
}


@contextmanager
def gateway(python: Path, folder: Path, cloud: int) -> Iterator[Carrier]:
    """ThingsBoard's."""
    with run_mosquitto(folder / "local") as local:
        for name in ("config", "store"):
            (folder / name).mkdir()
        for name, content in gateway_settings(folder, cloud, local.port).items():
            (folder / "config" / name).write_text(json.dumps(content))
        command = [str(python), "-c", "from thingsboard_gateway.tb_gateway import main; main()"]
        with Process(
            command,
            folder / "gateway.log",
            env={"TB_GW_CONFIG_DIR": f"{folder}/config"},
            cwd=folder,
        ) as process:
            yield Carrier("thingsboard-gateway", process, local.port, gateway_numbers)


def gateway_numbers(payload: bytes) -> list[int]:
    """Of `v1/gateway/telemetry`; other topics carry none."""
    try:
        found = orjson.loads(payload)
        return [
            int(one["values"]["n"])
            for of in found.values()
            if isinstance(of, list)
            for one in of
            if "n" in one.get("values", {})
        ]
    except (ValueError, AttributeError, TypeError):
        return []


def install_gateway(folder: Path) -> Path:
    """Its Python. Raises CalledProcessError, TimeoutExpired where it cannot be had."""
    venv.create(folder, with_pip=True)
    subprocess.run(
        [folder / "bin" / "pip", "install", "--quiet", GATEWAY],
        check=True,
        capture_output=True,
        timeout=INSTALL_S,
    )
    return folder / "bin" / "python"
