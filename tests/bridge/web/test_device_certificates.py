"""Devices that show a certificate at the door for HTTP; with TLS: tests/deploy/test_listen.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from edgewake.cloud.bridge.admission.mapped import Mapper
from edgewake.cloud.bridge.http_config import HttpConfig
from edgewake.cloud.bridge.web.device_certificates import DeviceCertificates
from edgewake.cloud.bridge.web.requests import Asked, Requests
from edgewake.cloud.web.tls import Certificate
from edgewake.protocol.certificates import book as books
from edgewake.protocol.certificates.book import Book
from edgewake.protocol.maps.compiling import compile_presets
from edgewake.protocol.maps.device_tokens import Holder
from edgewake.protocol.maps.http_forms import Head, Reply

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
