"""`edgewake delivery` against a real proxy, Kafka and receiver."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from edgewake.cloud.commands.deliveries import delivery
from edgewake.cloud.kafka.config import KafkaConfig
from tests.push.receiver import receiving
from tests.push.service import Service, readings, serving
from tests.services import PATIENCE_S, Kafka


@pytest.fixture(scope="module")
def push(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("commands")
    with serving(
        "push", kafka.bootstrap, directory, name="push-command", allow_hosts=["127.0.0.1"]
    ) as one:
        yield one


def said(url: str, *words: str) -> Result:
    return CliRunner().invoke(delivery, ["--push", url, "--json", *words])


@pytest.mark.services
async def test_a_delivery_from_a_file_to_its_end(
    push: Service, kafka_config: KafkaConfig, tmp_path: Path
) -> None:
    stream, name = (
        readings(kafka_config, f"cmd_{uuid.uuid4().hex[:12]}"),
        f"c{uuid.uuid4().hex[:12]}",
    )
    stream.add(5)
    async with receiving() as receiver:

        async def run(*words: str) -> Result:
            return await asyncio.to_thread(said, push.url, *words)

        receiver.answer = lambda n: (422 if b'"n":3' in receiver.calls[n].body else 204, {})
        file = tmp_path / "d.toml"
        file.write_text(
            f'[{name}]\nstreams = ["{stream.stream}"]\nurl = "{receiver.url}"\nfrom = "earliest"\n'
        )
        async with asyncio.timeout(PATIENCE_S):
            while (made := await run("apply", str(file))).exit_code:
                # It takes over still, or has not heard of the stream.
                assert "(503)" in made.output or "no stream" in made.output, made.output
            assert "whsec_" in made.output
            while True:
                found = json.loads((await run("show", name)).stdout)
                if (found["events"], found["letters"]) == (4, 1):
                    break
        (letter,) = json.loads((await run("letters", name)).stdout)
        assert letter["event"]["n"] == 3
        refused = await run("replay", name, str(letter["number"]))
        assert refused.exit_code == 1
        assert "422" in refused.output
        receiver.answer = lambda n: (204, {})
        for words in (
            ("replay", name, str(letter["number"])),
            ("test", name),
            ("enable", name),
            ("secret", name),
            ("list",),
            ("delete", name),
        ):
            done = await run(*words)
            assert done.exit_code == 0, done.output
        gone = await run("show", name)
        assert gone.exit_code == 1
        assert "no delivery of yours" in gone.output


@pytest.mark.parametrize(
    ("text", "expected"),
    [("x = 5", "expected a table [NAME]"), ("", "no delivery in it"), ("x = [", "d.toml")],
)
def test_a_file_that_is_no_deliveries_is_refused_in_words(
    tmp_path: Path, text: str, expected: str
) -> None:
    file = tmp_path / "d.toml"
    file.write_text(text)
    found = said("http://127.0.0.1:9", "apply", str(file))
    assert found.exit_code == 1
    assert expected in found.output


def test_a_proxy_that_is_not_there_is_said() -> None:
    found = said("http://127.0.0.1:9", "list")
    assert found.exit_code == 1
    assert "--push" in found.output
