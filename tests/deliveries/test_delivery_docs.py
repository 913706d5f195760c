"""The programs of docs/deliveries.md, as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import uuid
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol.leases.delivery import DeliveryRequest
from tests.push.service import Service, readings, serving
from tests.services import Kafka, free_ports, wait_until

DOC = (Path(__file__).parents[2] / "docs/deliveries.md").read_text()


@pytest.fixture(scope="module")
def push(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("documents")
    with serving(
        "push", kafka.bootstrap, directory, name="push-docs", allow_hosts=["127.0.0.1"]
    ) as one:
        yield one


def program(name: str) -> str:
    """A block of code of the page that begins with its name."""
    (block,) = re.findall(rf"```\w+\n((?:#|//) {re.escape(name)}\n.*?)```", DOC, re.DOTALL)
    return block


@pytest.mark.services
@pytest.mark.parametrize(
    "name", ["receive.py", pytest.param("receive.mjs", marks=pytest.mark.long)]
)
def test_what_is_registered_is_received(
    push: Service, kafka_config: KafkaConfig, tmp_path: Path, name: str
) -> None:
    stream = readings(kafka_config, f"doc_{uuid.uuid4().hex[:12]}")
    stream.add(60)
    (port,) = free_ports(1)

    def here(text: str) -> str:
        text = text.replace("http://127.0.0.1:8703", push.url).replace("9000", str(port))
        text = text.replace("vehicle_position", stream.stream).replace("speed_kmh", "n")
        return text.replace("fast_cars", stream.stream)

    register = here(program("register.sh"))
    made: list[bytes] = []

    def is_made() -> bool:  # a new stream is heard of soon
        done = subprocess.run(["sh", "-c", register], capture_output=True, check=False)
        made.append(done.stdout)
        return done.returncode == 0

    wait_until(is_made, "it is registered")
    secret = orjson.loads(made[-1])["secret"]
    file, output = tmp_path / name, tmp_path / "output.txt"
    file.write_text(here(program(name)))
    words = [sys.executable, str(file)] if name.endswith(".py") else ["node", str(file)]
    with output.open("w") as out, (tmp_path / "errors.txt").open("w") as errors:
        running = subprocess.Popen(
            words, stdout=out, stderr=errors, env={**os.environ, "SECRET": secret}
        )
        try:
            wait_until(lambda: output.read_text().count("\n") == 10, "ten are received")
            stream.add(5)
            wait_until(lambda: output.read_text().count("\n") == 15, "and five more")
        finally:
            running.kill()
            running.wait()
    numbers = [float(n) for n in re.findall(r"['\"]n['\"]: ?([\d.]+)", output.read_text())]
    assert sorted(numbers) == [float(n) for n in range(51, 66)]


def test_the_file_of_the_page_is_what_is_asked_for() -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", DOC, re.DOTALL)
    for body in tomllib.loads(block).values():
        assert DeliveryRequest(**body).where == "speed_kmh > 50"
