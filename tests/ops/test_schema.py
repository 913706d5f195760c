"""The operations API against its own OpenAPI document: no answer that the document does not foresee, whatever is asked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.ops.service import KEY, Ops, running
from tests.services import Kafka

EXAMPLES = 8
"""Requests of each kind and operation; the coverage phase adds every boundary of the document."""


@pytest.fixture(scope="module")
def ops(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ops]:
    with running(kafka.bootstrap, tmp_path_factory.mktemp("schema")) as service:
        yield service


def test_every_answer_is_one_that_the_document_foresees(ops: Ops, tmp_path: Path) -> None:
    config = tmp_path / "schemathesis.toml"
    # A query file is not described by a schema alone, so a body that fits may be refused. Either of two headers lets one in, so the
    # check that takes away one of them sees no refusal; tests/ops/test_auth.py has all combinations.
    config.write_text("[checks.positive_data_acceptance]\nenabled = false\n[checks.ignored_auth]\nenabled = false\n")
    program = Path(sys.executable).with_name("schemathesis")
    command = [str(program), "--config-file", str(config), "run", f"{ops.url}/openapi.json", "--header", f"X-API-Key: {KEY}"]
    # An event stream has no end.
    options = [
        "--exclude-path",
        "/v1/live",
        "--max-examples",
        str(EXAMPLES),
        "--phases",
        "coverage,fuzzing",
        "--mode",
        "all",
        "--seed",
        "1",
    ]
    done = subprocess.run([*command, *options, "--seed", "1", "--workers", "2"], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_every_method_of_a_path_is_in_allow(ops: Ops) -> None:
    document = httpx.get(f"{ops.url}/openapi.json").json()
    for path, methods in document["paths"].items():
        answer = ops.client.request("TRACE", path.replace("{", "").replace("}", ""))
        assert answer.status_code == 405, (path, answer.text)
        assert set(answer.headers["allow"].split(", ")) == {method.upper() for method in methods}, path
