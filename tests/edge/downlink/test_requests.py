"""The book of a device's requests. Pure, but for the command that shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.commands.cli import agent
from edgewake.edge.config import AgentConfig
from edgewake.edge.downlink.requests import BYTES_MAX, CONSUMER, ENDED_MAX, WAITING_MAX, Book, Entry
from edgewake.edge.log.consumer import STATE_BYTES_MAX
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.downlink.downlink import REPLIES, REQUESTS
from edgewake.protocol.downlink.request import check_request
from edgewake.protocol.errors import Rejected
from tests.edge.helpers import opened
from tests.services import free_ports, part, port_is_open, wait_until

ASKED = {"id": "a", "name": "route", "body": "to the depot", "expires_s": 60}
REPLY = {"id": "a", "state": "answered", "body": "12.4 km", "detail": ""}
BOTH = Entry("a", "route", 1, 60, "answered", "12.4 km", "", 2)


@given(st.permutations(["asked", "asked", "replied", "replied"]))
def test_a_request_and_its_reply_are_one_entry_in_whichever_order_they_are_read(
    order: list[str],
) -> None:
    book = Book()
    for what in order:
        book = Book.decode(
            (book.asked(1, ASKED) if what == "asked" else book.replied(2, REPLY)).encode()
        )
    assert book.entries == {"a": BOTH}


def test_what_is_wrong_is_left_out() -> None:
    assert Book().asked(1, {"id": "a b", "name": "x"}).entries == {}


def test_the_book_is_bounded_and_the_oldest_go() -> None:
    book = Book()
    for n in range(WAITING_MAX + 3):
        book = book.asked(n, ASKED | {"id": f"w{n}"})
    for n in range(ENDED_MAX + 3):
        book = book.replied(n, REPLY | {"id": f"e{n}"})
    assert len(book.entries) == WAITING_MAX + ENDED_MAX
    assert {"w2", "e2"}.isdisjoint(book.entries)
    for n in range(ENDED_MAX):
        book = book.replied(n, REPLY | {"id": f"large{n}", "body": "\N{GRINNING FACE}" * 8192})
        assert len(book.encode()) <= BYTES_MAX < STATE_BYTES_MAX
    assert f"large{ENDED_MAX - 1}" in book.entries


def configured(tmp_path: Path, *, requests: bool = True, **source: object) -> AgentConfig:
    given = {"type": "http_intake", "stream": REQUESTS, "port": 8099} | source
    return AgentConfig.checked(
        {"device": "d", "data_dir": tmp_path, "source": [given], "downlink": {"requests": requests}}
    )


def test_only_a_device_that_says_so_asks(tmp_path: Path) -> None:
    assert configured(tmp_path).downlink.requests
    for wrong in ({"requests": False}, {"send": False}):
        with pytest.raises(ValueError, match="asks the cloud"):
            configured(tmp_path, **wrong)


async def test_the_command_shows_what_waits_and_what_came(tmp_path: Path) -> None:
    config = tmp_path / "agent.toml"
    config.write_text(f'device = "d"\ndata_dir = "{tmp_path}"\n')
    with opened(tmp_path) as events:
        consumer = await events.consumer(CONSUMER, [REQUESTS, REPLIES])
        now_ms = SystemClock().now_ms()
        await consumer.commit(
            {},
            state=Book(
                {"a": BOTH, "b": Entry("b", "route", now_ms, 3600), "c": Entry("c", "route", 3, 60)}
            ).encode(),
        )

        def shown(*arguments: str) -> tuple[int, list[str]]:
            found = CliRunner().invoke(agent, ["requests", "--config", str(config), *arguments])
            return found.exit_code, [
                orjson.loads(line)["state"] for line in found.stdout.splitlines()
            ]

        assert shown() == (0, ["answered", "waiting", "expired"])
        assert shown("a", "--wait", "60") == (0, ["answered"])
        assert shown("b") == (3, ["waiting"])
        assert shown("c", "--wait", "60") == (0, ["expired"])
        assert shown("d")[0] == 4


def test_a_request_waits_no_longer_than_its_reply_is_worth_something() -> None:
    book = Book().asked(1_000, ASKED)
    assert book.at(60_999).entries["a"].state == "waiting"
    late = book.at(61_000).entries["a"]
    assert (late.state, late.detail) == ("expired", "no reply came within 60 s")
    assert book.replied(99_000, REPLY).at(99_000).entries["a"].state == "answered", (
        "one that comes still is taken"
    )


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"body_a": 1}, "'body_a' is not a field of a request"),
        ({"body": 5}, "body: expected text"),
        ({"id": "a b"}, "id: expected text that matches"),
        ({"expires_s": 0}, "expires_s: expected at least 1"),
        ({"name": None}, "name: missing"),
    ],
)
def test_what_the_cloud_would_refuse_is_refused_on_the_device(
    more: dict[str, Any], why: str
) -> None:
    check_request(ASKED)
    with pytest.raises(Rejected, match=why):
        check_request(ASKED | more)


def test_a_bad_request_takes_no_good_one_with_it(tmp_path: Path) -> None:
    """Two in one POST, the first with an object as body: the agent names it and asks the other one,
    which does not wait for ever.
    """
    (port, nobody) = free_ports(2)
    path = tmp_path / "agent.toml"
    path.write_text(
        f'device = "d"\ndata_dir = "{tmp_path}/data"\n[mqtt]\nport = '
        f"{nobody}\n[downlink]\nrequests = true\n"
        f'[[source]]\ntype = "http_intake"\nstream = "{REQUESTS}"\nport = {port}\n'
    )
    with part("agent", path, tmp_path / "out") as running:
        running.wait_for('"event":"part.ready"')
        wait_until(lambda: port_is_open(port), "the port")
        bad = {"id": "r-1", "name": "route", "body": {"to": "the depot"}}
        said = httpx.post(
            f"http://127.0.0.1:{port}/",
            json=[bad, bad | {"id": "r-2", "body": "to the depot", "expires_s": 1}],
        )
        assert (said.status_code, said.json()["taken"], said.json()["refused"]) == (200, 1, 1)
        assert said.json()["refusals"][0] | {"detail": ""} == {
            "item": 0,
            "status": 422,
            "reason": "shape",
            "detail": "",
        }
        shown = CliRunner().invoke(
            agent, ["requests", "r-2", "--wait", "60", "--config", str(path)]
        )
        assert (shown.exit_code, orjson.loads(shown.stdout)["state"]) == (0, "expired")
        assert CliRunner().invoke(agent, ["requests", "r-1", "--config", str(path)]).exit_code == 4
