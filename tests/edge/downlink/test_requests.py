"""The book of a device's requests. Pure, but for the command that shows it."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.commands.cli import agent
from edgewake.edge.config import AgentConfig
from edgewake.edge.downlink.requests import BYTES_MAX, CONSUMER, ENDED_MAX, WAITING_MAX, Book, Entry
from edgewake.edge.log.consumer import STATE_BYTES_MAX
from edgewake.protocol.downlink import REPLIES, REQUESTS
from tests.edge.helpers import opened

ASKED = {"id": "a", "name": "route", "body": "to the depot", "expires_s": 60}
REPLY = {"id": "a", "state": "answered", "body": "12.4 km", "detail": ""}
BOTH = Entry("a", "route", 1, 60, "answered", "12.4 km", "", 2)


@given(st.permutations(["asked", "asked", "replied", "replied"]))
def test_a_request_and_its_reply_are_one_entry_in_whichever_order_they_are_read(order: list[str]) -> None:
    book = Book()
    for what in order:
        book = Book.decode((book.asked(1, ASKED) if what == "asked" else book.replied(2, REPLY)).encode())
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
    return AgentConfig.checked({"device": "d", "data_dir": tmp_path, "source": [given], "downlink": {"requests": requests}})


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
        await consumer.commit({}, state=Book({"a": BOTH, "b": Entry("b", "route", 3, 60)}).encode())

        def shown(*arguments: str) -> tuple[int, list[str]]:
            found = CliRunner().invoke(agent, ["requests", "--config", str(config), *arguments])
            return found.exit_code, [orjson.loads(line)["state"] for line in found.stdout.splitlines()]

        assert shown() == (0, ["answered", "waiting"])
        assert shown("a", "--wait", "60") == (0, ["answered"])
        assert shown("b") == (3, ["waiting"])
        assert shown("c")[0] == 4
