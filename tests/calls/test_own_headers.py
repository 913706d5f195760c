"""Which headers an endpoint's owner may have sent, and when they are kept: decided without I/O."""

from __future__ import annotations

import pytest

from edgewake.cloud.calls import own_headers
from edgewake.cloud.calls.endpoint import EndpointRefused
from edgewake.cloud.calls.own_headers import BYTES_MAX, HEADERS_MAX, NAME_CHARS_MAX
from edgewake.cloud.calls.sealing import Endpoint
from edgewake.cloud.calls.webhook import signed_headers
from tests.push.builders import SECRET

URL = "https://push.example/1"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer a.b-c_d~e+f/g="},
        {"TTL": "60", "Urgency": "high", "Topic": "wake"},
        {"X-Words": "two words\tand one"},
        {f"x-{n}": "v" for n in range(HEADERS_MAX)},
        {"x": "v" * (BYTES_MAX - len("x: \r\n"))},
        {"n" * NAME_CHARS_MAX: "v"},
    ],
)
def test_headers_of_ones_own(headers: dict[str, str]) -> None:
    assert own_headers.check(headers) == {name.lower(): v for name, v in headers.items()}


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"Connection": "upgrade"}, "one connection"),
        ({"transfer-encoding": "chunked"}, "one connection"),
        ({"Proxy-Authorization": "Basic x"}, "one connection"),
        ({"Host": "10.0.0.1"}, "Edgewake itself sends it"),
        ({"Content-Length": "0"}, "Edgewake itself sends it"),
        ({"X-Forwarded-For": "127.0.0.1"}, "Edgewake itself sends it"),
        ({"Edgewake-Forwarded-By": "x"}, "Edgewake itself sends it"),
        ({"Webhook-Signature": "v1,x"}, "Edgewake itself sends it"),
        ({"webhook-id": "x"}, "Edgewake itself sends it"),
        ({"a": "x\r\nb: y"}, "visible ASCII"),
        ({"a": "x\n"}, "visible ASCII"),
        ({"a": ""}, "visible ASCII"),
        ({"a": " x"}, "visible ASCII"),
        ({"a": "g\u00fcnstig"}, "visible ASCII"),
        ({"a b": "x"}, "a name"),
        ({"a:": "x"}, "a name"),
        ({"": "x"}, "a name"),
        ({"a\r\nb": "x"}, "a name"),
        ({"n" * (NAME_CHARS_MAX + 1): "x"}, "a name"),
        ({"Accept": "x", "accept": "y"}, "twice"),
        ({f"x-{n}": "v" for n in range(HEADERS_MAX + 1)}, "at most 8"),
        ({"x": "v" * BYTES_MAX}, "at most 2048"),
    ],
)
def test_headers_that_are_refused(headers: dict[str, str], why: str) -> None:
    with pytest.raises(EndpointRefused, match=why):
        own_headers.check(headers)


def test_no_refusal_shows_a_value() -> None:
    with pytest.raises(EndpointRefused) as refused:
        own_headers.check({"authorization": "hunter2\n"})
    assert "hunter2" not in str(refused.value)


def test_nothing_that_we_send_is_theirs_to_set() -> None:
    for name in signed_headers(SECRET, "m", "{}", at_ms=0):
        with pytest.raises(EndpointRefused):
            own_headers.check({name: "x"})


def test_they_are_kept_for_the_same_address_alone() -> None:
    before = Endpoint(URL, SECRET, "", {"authorization": "a"})
    assert own_headers.after(None, URL, before) == {"authorization": "a"}
    assert own_headers.after(None, URL + "2", before) == {}
    assert own_headers.after({}, URL, before) == {}
    assert own_headers.after({"X": "b"}, URL, before) == {"x": "b"}
    assert own_headers.after(None, URL, None) == {}
