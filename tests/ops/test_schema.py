"""The operations API against its own OpenAPI document: no answer that the document does not
foresee, whatever is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.house.source import ROOT
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


ASKED = re.compile(r"""["`](/v1/[^"`?]*)""")
VALUE = re.compile(r"\$\{[^}]*(\}|$)")


def _fits(asked: list[str], known: list[str]) -> bool:
    """Is a path of a page, with its values as `*`, one of the document's?"""
    return len(asked) == len(known) and all(
        one in ("*", other) or other.startswith("{")
        for one, other in zip(asked, known, strict=True)
    )


def test_every_path_that_a_page_asks_is_in_the_document(ops: Ops) -> None:
    pages = (ROOT / "cloud/page/ops").glob("*.js")
    texts = {text for page in pages for text in ASKED.findall(page.read_text("utf-8"))}
    asked = {VALUE.sub("*", text).replace("**", "*").rstrip() for text in texts}
    known = [path.split("/") for path in httpx.get(f"{ops.url}/openapi.json").json()["paths"]]
    assert len(asked) > 50
    missing = {one for one in asked if not any(_fits(one.split("/"), path) for path in known)}
    assert missing == set()


def test_every_method_of_a_path_is_in_allow(ops: Ops) -> None:
    document = httpx.get(f"{ops.url}/openapi.json").json()
    for path, methods in document["paths"].items():
        answer = ops.client.request("TRACE", path.replace("{", "").replace("}", ""))
        assert answer.status_code == 405, (path, answer.text)
        assert set(answer.headers["allow"].split(", ")) == {method.upper() for method in methods}, (
            path
        )
