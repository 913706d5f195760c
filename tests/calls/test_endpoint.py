from __future__ import annotations

from collections.abc import Sequence

import pytest

from edgewake.cloud.calls.endpoint import (
    ADDRESSES_MAX,
    Endpoint,
    EndpointRefused,
    is_public,
    parse,
    resolve,
    system_resolver,
)
from edgewake.protocol.errors import Unavailable

REFUSED_URLS = [
    "http://example.com/",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://example.com/",
    "https://example.com:80/",
    "https://example.com:22/",
    "https://example.com:9092/",
    "https://example.com:0/",
    "https://example.com:99999/",
    "https://user@example.com/",
    "https://user:secret@example.com/",
    "https://example.com@127.0.0.1/",
    "https://",
    "https:///path",
    "https://exa mple.com/",
    "https://example.com\\@127.0.0.1/",
    "https://example.com/\r\nX: y",
    "https://[fe80::1%25eth0]/",
    "https://[::1/",
    "//example.com/",
    "example.com",
    "",
    "https://ex\u00e4mple.com/",
    "https://example.com/" + "a" * 2048,
]

PRIVATE_HOSTS = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "0x7f.1",
    "0x7f000001",
    "2130706433",
    "017700000001",
    "0177.0.0.1",
    "0",
    "0.0.0.0",
    "localhost",
    "10.0.0.1",
    "10.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "169.254.169.254",
    "0xa9fea9fe",
    "100.64.0.1",
    "100.127.255.255",
    "192.0.0.8",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "[::]",
    "[::1]",
    "[::127.0.0.1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::ffff:169.254.169.254]",
    "[::ffff:8.8.8.8]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b::8.8.8.8]",
    "[64:ff9b:1::a00:1]",
    "[2001::1]",
    "[2001:db8::1]",
    "[2002:7f00:1::]",
    "[2002:a00:1::1]",
    "[3fff::1]",
    "[5f00::1]",
    "[fc00::1]",
    "[fd00::1]",
    "[fd00:ec2::254]",
    "[fe80::1]",
    "[fec0::1]",
    "[ff02::1]",
    "[100::1]",
]


@pytest.mark.parametrize("url", REFUSED_URLS)
def test_a_url_that_is_no_plain_https_address_is_refused(url: str) -> None:
    with pytest.raises(EndpointRefused):
        parse(url, ())


@pytest.mark.parametrize("host", PRIVATE_HOSTS)
async def test_every_spelling_of_an_inner_address_is_refused(host: str) -> None:
    """Some of these the machine's resolver does not know at all; then there is no address to
    connect to either.
    """
    with pytest.raises((EndpointRefused, Unavailable)):
        await resolve(parse(f"https://{host}/hook", ()), system_resolver)


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "1.1.1.1", "100.63.0.1", "172.32.0.1", "2606:4700:4700::1111", "2a00:1450:4001::1"],
)
def test_public_addresses_are_public(address: str) -> None:
    assert is_public(address)


def resolver(*addresses: str) -> object:
    async def answer(_: str, __: int) -> Sequence[str]:
        return addresses

    return answer


async def test_one_inner_address_among_public_ones_refuses_the_name() -> None:
    with pytest.raises(EndpointRefused, match="not a public address"):
        await resolve(parse("https://example.com/", ()), resolver("8.8.8.8", "10.0.0.1"))


async def test_all_addresses_are_given_in_the_resolver_s_order_each_once_and_bounded() -> None:
    many = [f"8.8.8.{n}" for n in (1, 2, 2, 3, 4, 5, 6)]
    assert await resolve(parse("https://example.com/", ()), resolver(*many)) == [
        "8.8.8.1",
        "8.8.8.2",
        "8.8.8.3",
        "8.8.8.4",
    ]
    assert ADDRESSES_MAX == 4


async def test_an_inner_address_beyond_those_that_are_tried_refuses_the_name_too() -> None:
    with pytest.raises(EndpointRefused, match="not a public address"):
        await resolve(
            parse("https://example.com/", ()),
            resolver(*(f"8.8.8.{n}" for n in range(9)), "10.0.0.1"),
        )


async def test_a_name_without_an_address_is_tried_again_later() -> None:
    with pytest.raises(Unavailable):
        await resolve(parse("https://example.com/", ()), resolver())


async def test_an_allowed_host_may_have_any_address_and_port_and_plain_http() -> None:
    endpoint = parse("http://LOCALHOST:8080/hook?a=1", ["localhost"])
    assert endpoint == Endpoint("http", "localhost", 8080, "/hook?a=1", exempt=True)
    assert await resolve(endpoint, resolver("127.0.0.1")) == ["127.0.0.1"]


def test_an_allowed_host_does_not_allow_its_neighbours() -> None:
    with pytest.raises(EndpointRefused):
        parse("http://localhost.example.com:8080/", ["localhost"])


def test_the_name_is_the_host_header_and_what_is_asked_for_ends_before_the_fragment() -> None:
    endpoint = parse("https://example.com.:8443/hook?x=1#part", ())
    assert (endpoint.netloc, endpoint.target) == ("example.com:8443", "/hook?x=1")
