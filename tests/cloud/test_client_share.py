"""What one client may take of a bound, and who a client is."""

from __future__ import annotations

import pytest

from edgewake.cloud.client_share import ADDRESS_CHARS_MAX, UNKNOWN, Bound, Clients, _read

VIEWS = Bound("views", 500, 0.25)


def taken(bound: Bound, clients: int, *, each: int) -> list[int]:
    """What each of so many clients gets that ask one after the other for `each`."""
    held = [0] * clients
    for client in range(clients):
        while held[client] < each and bound.refusal(total=sum(held), held=held[client]) is None:
            held[client] += 1
    return held


def test_one_client_gets_its_share_and_others_the_rest() -> None:
    assert taken(VIEWS, 1, each=1000) == [125]


def test_a_few_greedy_clients_leave_the_reserve_to_those_who_hold_little() -> None:
    greedy, modest = taken(VIEWS, 4, each=1000), taken(VIEWS, 12, each=1000)
    assert sum(greedy) == 400
    assert all(modest[4:]), "who comes after them is served"
    assert sum(taken(VIEWS, 1000, each=1000)) == 500


@pytest.mark.parametrize("most", [1, 2, 4])
def test_a_small_bound_serves_somebody(most: int) -> None:
    assert sum(taken(Bound("streams", most, 1.0), 1, each=10)) == most
    assert taken(Bound("streams", most, 0.25), 1, each=10) == [1]


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.7", [], "192.0.2.7"),
        ("::ffff:192.0.2.7", [], "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", [], "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", [], "2001:db8:1:2::/64"),
        ("fe80::1%eth0", [], "fe80::/64"),
        ("10.0.0.5", ["198.51.100.9"], "198.51.100.9"),
        ("10.0.0.5", ["203.0.113.1, 198.51.100.9"], "198.51.100.9"),
        ("10.0.0.5", ["203.0.113.1", "198.51.100.9, 10.0.0.6"], "198.51.100.9"),
        ("10.0.0.5", ["2001:db8::9"], "2001:db8::/64"),
        ("10.0.0.5", ["hidden"], "10.0.0.5"),
        ("10.0.0.5", [""], "10.0.0.5"),
        ("192.0.2.7", ["198.51.100.9"], "192.0.2.7"),
        (None, ["198.51.100.9"], UNKNOWN),
    ],
)
def test_a_client_is_the_last_address_that_is_no_proxy_of_ours(
    peer: str | None, forwarded: list[str], client: str
) -> None:
    assert Clients(["10.0.0.0/8"]).of(peer, forwarded) == client


def test_who_is_no_proxy_of_ours_cannot_choose_its_address() -> None:
    assert Clients().of("192.0.2.7", ["198.51.100.9"]) == "192.0.2.7"


def test_what_somebody_invents_as_an_address_is_not_remembered() -> None:
    """A header may have 64 KB, and thousands of them would be kept."""
    clients = Clients(["127.0.0.1"])
    before = _read.cache_info().currsize
    for number in range(50):
        assert clients.of("127.0.0.1", [f"{'9' * ADDRESS_CHARS_MAX}{number}"]) == "127.0.0.1"
    assert _read.cache_info().currsize <= before + 1, "that of the proxy alone"
    assert clients.of("127.0.0.1", ["fe80::1%eth0"]) == "fe80::/64"
