"""The operations API against its own OpenAPI document: no answer that the document does not
foresee, whatever is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.ops.service import KEY, Ops, running
from tests.schema import WHOLE, check
from tests.services import Kafka


@pytest.fixture(scope="module")
def ops(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ops]:
    with running(kafka.bootstrap, tmp_path_factory.mktemp("schema")) as service:
        yield service


@WHOLE
def test_every_answer_is_one_that_the_document_foresees(
    ops: Ops, tmp_path: Path, whole: bool
) -> None:
    # A query file is not described by a schema alone, so a body that fits may be refused. Either of
    # two headers lets one in, so the check that takes away one of them sees no refusal;
    # tests/ops/login/test_auth.py has all combinations. An event stream has no end.
    disabled = ("positive_data_acceptance", "ignored_auth")
    check(
        ops.url,
        tmp_path,
        "--header",
        f"X-API-Key: {KEY}",
        "--exclude-path",
        "/v1/live",
        whole=whole,
        disabled=disabled,
    )


def test_every_method_of_a_path_is_in_allow(ops: Ops) -> None:
    document = httpx.get(f"{ops.url}/openapi.json").json()
    for path, methods in document["paths"].items():
        answer = ops.client.request("TRACE", path.replace("{", "").replace("}", ""))
        assert answer.status_code == 405, (path, answer.text)
        assert set(answer.headers["allow"].split(", ")) == {method.upper() for method in methods}, (
            path
        )
