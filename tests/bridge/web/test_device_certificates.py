"""Devices that show a certificate at the door for HTTP; with TLS: tests/deploy/test_listen.py."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import pytest
from pydantic import ValidationError

from edgewake.cloud.bridge.admission.mapped import Mapper
from edgewake.cloud.bridge.http_config import HttpConfig
from edgewake.cloud.bridge.web.device_certificates import DeviceCertificates
from edgewake.cloud.bridge.web.requests import Asked, Requests
from edgewake.cloud.bridge.web.serving import serve
from edgewake.cloud.web.tls import Certificate
from edgewake.protocol.certificates import book as books
from edgewake.protocol.certificates.book import Book
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.maps.compiling import compile_presets
from edgewake.protocol.maps.device_tokens import DeviceTokens, Holder
from edgewake.protocol.maps.http_forms import Head, Reply
from edgewake.protocol.maps.map_file import MapFile
from tests.bridge.thingsboard.alone import away, bridge
from tests.services import PATIENCE_S, free_ports

END_MS = 2_000_000_000_000
PUMP = Certificate("pump", "abc1")


def given(path: Path) -> Book:
    """A book in which the pump has a certificate."""
    book = Book().given("pump", "0abc1", END_MS, now_ms=1)
    path.write_text(books.text_of(book))
    return book


def test_a_certificate_is_good_until_it_is_taken_back_or_another_is_given(tmp_path: Path) -> None:
    path = tmp_path / "certificates.json"
    found = DeviceCertificates(path)
    assert found.holder_of(PUMP) is None, "there is no file yet"
    book = given(path)
    assert found.holder_of(PUMP) == Holder("pump"), "it is new"
    assert found.holder_of(Certificate("other", "abc1")) is None
    path.write_text("{")
    assert not found.look()
    assert found.holder_of(PUMP) == Holder("pump"), "what was right stays"
    path.write_text(books.text_of(book.given("pump", "def2", END_MS, now_ms=2)))
    assert found.look()
    assert found.holder_of(PUMP) is None
    assert found.holder_of(Certificate("pump", "def2")) == Holder("pump")


@pytest.mark.parametrize("text", ['{"held":[],"revoked":[],"number":0}', "[]", "3", '{"held":{}}'])
def test_contents_that_are_wrong_change_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    path = tmp_path / "certificates.json"
    given(path)
    found = DeviceCertificates(path)
    path.write_text(text)
    for _ in range(3):
        assert found.holder_of(PUMP) == Holder("pump")
    (said,) = caplog.messages
    assert "certificates_file" in said
    with pytest.raises(ConfigError, match="certificates_file"):
        DeviceCertificates(path)


def test_a_file_that_could_not_be_opened_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "certificates.json"
    found = DeviceCertificates(path)
    given(path)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))  # no file more may be open
        for _ in range(3):
            assert found.holder_of(PUMP) is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    (said,) = caplog.messages
    assert "Too many open files" in said
    assert found.holder_of(PUMP) == Holder("pump")


def test_tokens_that_could_not_be_opened_are_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("A a\n")
    found = DeviceTokens(path)
    path.write_text("LONGER longer\n")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
        assert not found.look()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert found.look()
    assert (found.holder_of("A"), found.holder_of("LONGER")) == (None, Holder("longer"))
    assert found.devices == {"longer"}


async def test_the_door_ends_with_who_looks_at_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else who was taken back would be let in for ever."""

    def dies(_files: MapFile) -> bool:
        raise RuntimeError("no more looks")

    monkeypatch.setattr(MapFile, "look", dies)
    clock, (port,) = FakeClock(), free_ports(1)
    with pytest.raises(ExceptionGroup) as died:
        async with asyncio.timeout(PATIENCE_S):
            await serve(HttpConfig(port=port), bridge(clock, away(10)), clock, asyncio.Event())
    assert died.group_contains(RuntimeError, match="no more looks")


def test_who_shows_one_is_that_device_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "certificates.json"
    given(path)
    mapper = Mapper(compile_presets(["influx"], needs_names=True), "")
    requests = Requests(mapper, None, "", 1000, None, DeviceCertificates(path))

    def asked(topic: str, shown: Certificate | None) -> Asked | Reply:
        head = Head.of("POST", topic, {"content-type": "application/json"})
        return requests.asked(head, shown=shown)

    good = asked("/ew/v1/pump/up/hello", PUMP)
    assert isinstance(good, Asked)
    assert (good.payer, good.is_named) == ("pump", False)
    for topic, shown, status in (
        ("/ew/v1/valve/up/hello", PUMP, 403),
        ("/ew/v1/pump/up/hello", Certificate("pump", "def2"), 401),
    ):
        refused = asked(topic, shown)
        assert isinstance(refused, Reply)
        assert refused.status == status


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"also_client_ca_file": "ca.crt"}, "belong together"),
        ({"certificates_file": "certificates.json"}, "belong together"),
        (
            {"also_client_ca_file": "ca.crt", "certificates_file": "certificates.json"},
            "expected also_cert_file",
        ),
    ],
)
def test_what_belongs_together_is_asked_for(values: dict[str, str], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        HttpConfig.model_validate(values)
