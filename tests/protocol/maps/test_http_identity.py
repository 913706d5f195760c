"""Who sends a request, told by its head alone."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from edgewake.protocol.maps.device_tokens import DeviceTokens, Holder
from edgewake.protocol.maps.http_forms import Head, Reply
from edgewake.protocol.maps.http_identity import NO_BROWSER, identified, is_from_a_page


def head(token: str = "", method: str = "POST", **headers: str) -> Head:
    shown = {"authorization": f"Bearer {token}"} if token else {}
    return Head.of(method, "/any/path", shown | headers)


@pytest.fixture
def tokens(tmp_path: Path) -> DeviceTokens:
    (tmp_path / "tokens").write_text("own car-07\nhub hub-1 gateway\n")
    return DeviceTokens(tmp_path / "tokens")


def test_who_shows_a_device_s_token_is_the_device_and_a_gateway_may_name_others(
    tokens: DeviceTokens,
) -> None:
    own, hub = identified(head("own"), None, tokens), identified(head("hub"), None, tokens)
    assert isinstance(own, Head)
    assert isinstance(hub, Head)
    assert [(one.device, one.gateway) for one in (own, hub)] == [("car-07", ""), ("", "hub-1")]


def test_who_shows_the_token_of_all_may_name_any_device(tokens: DeviceTokens) -> None:
    assert identified(head("all"), "all", tokens) == head("all")


def test_a_certificate_counts_before_any_token(tokens: DeviceTokens) -> None:
    found = identified(head("own"), None, tokens, certified=Holder("boiler"))
    assert isinstance(found, Head)
    assert found.device == "boiler"


@pytest.mark.parametrize("shown", ["", "wrong", "al", "allx"])
def test_strangers_are_refused_where_a_token_is_asked_for(shown: str, tokens: DeviceTokens) -> None:
    for token, known in (("all", None), (None, tokens), ("all", tokens)):
        found = identified(head(shown), token, known)
        assert isinstance(found, Reply)
        assert found.status == 401


def test_where_nothing_is_asked_for_everybody_is_let_in() -> None:
    assert identified(head(), None, None) == head()


def test_a_login_with_a_password_is_its_device() -> None:
    class Passwords:
        def holder_of(self, name: str, password: str) -> Holder | None:
            return Holder(name) if password == "right" else None

    def login(password: str) -> Head | Reply:
        shown = base64.b64encode(f"car:{password}".encode()).decode()
        return identified(head(authorization=f"Basic {shown}"), None, None, Passwords())

    right, wrong = login("right"), login("wrong")
    assert isinstance(right, Head)
    assert right.device == "car"
    assert isinstance(wrong, Reply)
    assert wrong.status == 401


@pytest.mark.parametrize(
    "headers", [{"origin": "https://a.example"}, {"sec-fetch-site": "same-origin"}]
)
def test_a_page_of_a_browser_is_refused_whatever_it_shows(headers: dict[str, str]) -> None:
    assert is_from_a_page(headers)
    found = identified(head("all", **headers), "all", None)
    assert isinstance(found, Reply)
    assert found.status == 403
    assert NO_BROWSER.encode() in found.body


def test_only_a_post_sends(tokens: DeviceTokens) -> None:
    found = identified(head("own", "PUT"), None, tokens)
    assert isinstance(found, Reply)
    assert found.status == 405
