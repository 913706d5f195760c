"""What a hostile or confused cloud may send: each message is confirmed or refused once, and nothing
is done that is not allowed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.edge.downlink import commands
from edgewake.edge.downlink.config import CommandConfig, DownlinkConfig
from edgewake.edge.downlink.downlink import Downlink
from edgewake.edge.downlink.inbox import (
    BAD_PAYLOAD,
    INBOX,
    QUOTA_EXCEEDED,
    SUCCESS,
    WAITING_BYTES_MAX,
    WAITING_MAX,
    Inbox,
)
from edgewake.edge.downlink.kept import Kept, Now
from edgewake.edge.log.event_log import EventLog, LogBusyError
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.downlink.down_message import Command
from edgewake.protocol.downlink.downlink import (
    ANSWERS,
    ARGS_MAX,
    EXPIRES_S_MAX,
    MESSAGE_BYTES_MAX,
    REPLIES,
    Answer,
    AnswerState,
    DownKind,
)
from tests.edge.actions.helpers import until
from tests.edge.helpers import opened
from tests.examples import examples

NOW_MS = 1_790_000_000_000


class Device:
    """An inbox and what does its messages, over a real log; programs are not run."""

    def __init__(self, events: EventLog, config: DownlinkConfig) -> None:
        self.clock = FakeClock(NOW_MS)
        self.events = events
        self.inbox = Inbox(events, self.clock, boot="boot")
        self.downlink = Downlink(config, self.inbox)
        self.told: list[int] = []

    def take(self, message: Any, kind: str = "command", expires_s: int | None = 60) -> None:
        payload = message if isinstance(message, bytes) else orjson.dumps(message)
        self.inbox.take(kind, payload, expires_s, self.told.append)

    async def answers(self, count: int) -> list[dict[str, Any]]:
        """All that were given, as soon as there are so many."""
        consumer = await self.events.consumer("test of answers", [ANSWERS])
        found: list[dict[str, Any]] = []
        while len(found) < count:
            chunk = await consumer.read()
            found += [dict(fields) for item in chunk.items for _, fields in item.readings]  # type: ignore[union-attr]
            await consumer.commit(chunk.cursor)
        return found


CONFIG = DownlinkConfig(command={"go": CommandConfig(argv=("/bin/go",), args_max=1)})
GO = {"id": "a", "name": "go"}


@asynccontextmanager
async def device(
    directory: Path, *, works: bool = True, config: DownlinkConfig = CONFIG
) -> AsyncIterator[Device]:
    with opened(directory, local=frozenset({INBOX})) as events:
        one = Device(events, config)
        await one.inbox.open()
        await events.consumer("test of answers", [ANSWERS])
        task = (
            asyncio.create_task(one.downlink.run())
            if works
            else asyncio.create_task(asyncio.Event().wait())
        )
        try:
            yield one
        finally:
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled(), "nothing ended it"


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EventLog]:
    """A log to which nothing comes."""
    with opened(tmp_path_factory.mktemp("log"), local=frozenset({INBOX})) as one:
        yield one


@pytest.fixture(autouse=True)
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of commands that were run."""
    found: list[str] = []

    async def run(command: Command, _config: CommandConfig) -> Answer:
        found.append(command.id)
        return Answer(
            id=command.id, kind=DownKind.COMMAND, state=AnswerState.DONE, name=command.name
        )

    monkeypatch.setattr(commands, "run", run)
    return found


@pytest.mark.parametrize(
    ("message", "kind", "expires_s"),
    [
        pytest.param(b"", "command", 60, id="nothing"),
        pytest.param(b"\xff\xfe", "command", 60, id="not UTF-8"),
        pytest.param(b'{"id":"a","name":"g\xe9"}', "command", 60, id="Latin-1 in the middle"),
        pytest.param(b"\xef\xbb\xbf" + orjson.dumps(GO), "command", 60, id="the mark of an editor"),
        pytest.param(b"[" * 60_000, "command", 60, id="nested without end"),
        pytest.param(
            b'{"id":"a","name":"go","x":' + b"[" * 60_000,
            "command",
            60,
            id="nested in a key that is not known",
        ),
        pytest.param(orjson.dumps(GO) + b" " * MESSAGE_BYTES_MAX, "command", 60, id="huge"),
        pytest.param(GO, "firmware", 60, id="a kind that is not known"),
        pytest.param(GO, "", 60, id="no kind"),
        pytest.param(GO, "COMMAND", 60, id="a kind in capitals"),
        pytest.param(GO, "command/../settings", 60, id="a kind with a path"),
        pytest.param(GO, "command", None, id="without a life"),
        pytest.param(GO, "command", -1, id="a life below nought"),
        pytest.param(GO, "command", EXPIRES_S_MAX + 1, id="a life too long"),
        pytest.param([GO], "command", 60, id="a list"),
        pytest.param({"name": "go"}, "command", 60, id="no id"),
        pytest.param(GO | {"id": ""}, "command", 60, id="an empty id"),
        pytest.param(GO | {"id": "a" * 65}, "command", 60, id="a long id"),
        pytest.param(GO | {"id": "a\n"}, "command", 60, id="an id with a line's end"),
        pytest.param(GO | {"id": 5}, "command", 60, id="a number as id"),
        pytest.param(GO | {"name": "../go"}, "command", 60, id="a path as name"),
        pytest.param(GO | {"name": "go\n"}, "command", 60, id="a name with a line's end"),
        pytest.param(GO | {"args": "x"}, "command", 60, id="arguments as text"),
        pytest.param(GO | {"args": ["x"] * (ARGS_MAX + 1)}, "command", 60, id="too many arguments"),
        pytest.param(GO | {"args": ["a\0b"]}, "command", 60, id="an argument with NUL"),
        pytest.param(GO | {"args": ["x" * 1025]}, "command", 60, id="a long argument"),
        pytest.param({"id": "a", "version": 0, "text": ""}, "settings", 60, id="version nought"),
        pytest.param(
            {"id": "a", "version": -7, "text": ""}, "settings", 60, id="a version below nought"
        ),
        pytest.param(
            {"id": "a", "version": 1.0, "text": ""},
            "settings",
            60,
            id="a version that is no integer",
        ),
        pytest.param(
            {"id": "a", "version": True, "text": ""}, "settings", 60, id="a version that is true"
        ),
        pytest.param(
            {"id": "a", "version": "7", "text": ""}, "settings", 60, id="a version as text"
        ),
        pytest.param(
            {"id": "a", "version": 2**63, "text": ""}, "settings", 60, id="a version beyond all"
        ),
        pytest.param(
            b'{"id":"a","version":1e400,"text":""}', "settings", 60, id="a version without end"
        ),
        pytest.param({"id": "a", "version": 1, "text": {}}, "settings", 60, id="a table as text"),
        pytest.param({"id": "a", "state": "answered"}, "reply", 60, id="a reply whose id is none"),
        pytest.param(
            {"id": "reply-a", "state": "done"}, "reply", 60, id="a reply of a state that is none"
        ),
        pytest.param(
            {"id": "reply-a", "state": "answered", "body": "x" * 9000},
            "reply",
            60,
            id="a reply too long",
        ),
    ],
)
def test_what_is_no_message_is_refused_once(
    events: EventLog, message: Any, kind: str, expires_s: int | None
) -> None:
    one = Device(events, CONFIG)
    one.take(message, kind, expires_s)
    assert (one.told, dict(one.inbox.counts)) == ([BAD_PAYLOAD], {"refused": 1})


async def test_after_what_was_refused_the_next_one_is_done(tmp_path: Path, ran: list[str]) -> None:
    async with device(tmp_path) as one:
        for _ in range(300):
            one.take(b"\xff" * 100)
        one.take(GO)
        assert [answer["state"] for answer in await one.answers(1)] == ["done"]
        assert (one.told, ran) == ([BAD_PAYLOAD] * 300 + [SUCCESS], ["a"])


@pytest.mark.parametrize(
    ("message", "kind", "state", "says"),
    [
        pytest.param(
            {"id": "a", "name": "rm"},
            "command",
            "refused",
            "no command 'rm' is allowed on this device; allowed: go",
            id="unknown",
        ),
        pytest.param(
            GO | {"args": ["1", "2"]},
            "command",
            "refused",
            "2 arguments: expected at most 1",
            id="an argument too many",
        ),
        pytest.param(
            GO | {"args": ["--force"]},
            "command",
            "refused",
            "an argument begins with a hyphen",
            id="an option",
        ),
        pytest.param(
            {"id": "a", "version": 1, "text": ""},
            "settings",
            "refused",
            "takes no settings from afar",
            id="settings",
        ),
        pytest.param(
            {"id": "reply-a", "state": "answered"},
            "reply",
            "refused",
            "this device asks for nothing",
            id="a reply",
        ),
        pytest.param(
            GO | {"later": {"key": [1]}}, "command", "done", "", id="with a key of a later version"
        ),
        pytest.param(
            b'{"id":"b","name":"rm","id":"a","name":"go"}',
            "command",
            "done",
            "",
            id="with keys twice: the last ones count",
        ),
        pytest.param(
            GO | {"args": ["; rm -rf /"]},
            "command",
            "done",
            "",
            id="with an argument that is a shell's text",
        ),
    ],
)
async def test_what_is_not_allowed_is_answered_and_not_done(
    tmp_path: Path, ran: list[str], message: Any, kind: str, state: str, says: str
) -> None:
    async with device(tmp_path) as one:
        one.take(message, kind)
        (answer,) = await one.answers(1)
        assert (answer["state"], says in answer.get("detail", ""), one.told) == (
            state,
            True,
            [SUCCESS],
        )
        assert bool(ran) == (state == "done")


async def test_a_message_that_comes_ten_times_is_done_once_and_confirmed_each_time(
    tmp_path: Path, ran: list[str]
) -> None:
    async with device(tmp_path) as one:
        for _ in range(5):
            one.take(GO)
        await one.answers(1)
        for _ in range(5):
            one.take(GO)
        await until(lambda: len(one.told) == 10)
    async with device(tmp_path) as again:
        again.take(GO)
        again.take({"id": "b", "name": "go"})
        assert [answer["id"] for answer in await again.answers(1)] == ["b"]
    assert (set(one.told + again.told), ran) == ({SUCCESS}, ["a", "b"])


async def test_what_an_earlier_life_has_done_is_known_before_this_one_works(tmp_path: Path) -> None:
    """The connection may be there before the inbox has begun."""
    async with device(tmp_path) as one:
        one.take(GO)
        await one.answers(1)
    async with device(tmp_path, works=False) as again:
        again.take(GO)
        assert (again.told, dict(again.inbox.counts)) == ([SUCCESS], {"repeated": 1})


def test_a_clock_that_stands_before_1970_is_one_of_1970(events: EventLog) -> None:
    one = Device(events, CONFIG)
    one.clock.jump(-(NOW_MS + 5_000) / 1000)
    assert one.inbox.now() == Now(0, 0.0, "boot")


async def test_the_same_id_for_another_deed_is_the_same_message(
    tmp_path: Path, ran: list[str]
) -> None:
    async with device(tmp_path) as one:
        one.take(GO | {"args": ["first"]})
        one.take(GO | {"args": ["second"]})
        one.take({"id": "a", "version": 1, "text": ""}, "settings")
        one.take({"id": "end", "name": "go"})
        assert [answer["id"] for answer in await one.answers(2)] == ["a", "end"]
        assert one.inbox.counts["repeated"] == 2
    assert ran == ["a", "end"]


async def test_they_are_done_in_the_order_in_which_they_came(
    tmp_path: Path, ran: list[str]
) -> None:
    async with device(tmp_path) as one:
        for number in range(20):
            one.take({"id": f"c{19 - number}", "name": "go"})
        await one.answers(20)
    assert ran == [f"c{19 - number}" for number in range(20)]


@pytest.mark.parametrize(
    ("waits_s", "state"),
    [(60.0, "done"), (60.1, "expired")],
    ids=["at the end of its life", "a moment after"],
)
async def test_what_is_over_when_its_turn_comes_is_answered_as_that(
    tmp_path: Path, ran: list[str], waits_s: float, state: str
) -> None:
    async with device(tmp_path, works=False) as one:
        one.take(GO)
        await until(lambda: one.told)
        one.clock.advance(waits_s)
        working = asyncio.create_task(one.downlink.run())
        (answer,) = await one.answers(1)
        working.cancel()
        assert (answer["state"], bool(ran)) == (state, state == "done")
        assert state == "done" or answer["detail"] == "its 60 s were over before it was begun"


# bounds


async def test_one_more_than_the_bound_is_put_off_and_not_kept(tmp_path: Path) -> None:
    async with device(tmp_path, works=False) as one:
        for number in range(WAITING_MAX):
            one.take({"id": f"c{number}", "name": "go"})
        one.take({"id": "more", "name": "go"})
        assert one.told == [QUOTA_EXCEEDED]
        await until(lambda: len(one.told) == WAITING_MAX + 1)
        assert dict(one.inbox.counts) == {"taken": WAITING_MAX, "put_off": 1}
        one.take({"id": "c0", "name": "go"})
        assert one.inbox.counts["repeated"] == 1, "what waits already needs no room"


async def test_bytes_are_bounded_like_messages_and_the_last_byte_fits(tmp_path: Path) -> None:
    async with device(tmp_path, works=False) as one:
        large = WAITING_BYTES_MAX // 16
        for number in range(16):
            head = orjson.dumps({"id": f"c{number}", "name": "go"})
            one.take(head + b" " * (large - len(head)))
        assert (one.inbox.counts["taken"], one.inbox.counts["put_off"]) == (16, 0)
        one.take({"id": "x", "name": "go"})
        assert one.inbox.counts["put_off"] == 1


async def test_before_the_log_is_open_and_while_it_is_full_all_are_put_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, local=frozenset({INBOX})) as events:
        one = Device(events, CONFIG)
        one.take(GO)
        assert one.told == [QUOTA_EXCEEDED]
        await one.inbox.open()

        def full(_reading: object) -> int:
            raise LogBusyError

        monkeypatch.setattr(one.inbox._stream, "append", full)
        one.take(GO)
        assert (one.told, one.inbox.counts["put_off"]) == ([QUOTA_EXCEEDED] * 2, 2)
        monkeypatch.undo()
        one.take(GO)
        await until(lambda: len(one.told) == 3)
        assert one.told[-1] == SUCCESS


async def test_a_log_that_closes_before_it_is_durable_confirms_nothing(tmp_path: Path) -> None:
    async with device(tmp_path, works=False) as one:
        await asyncio.to_thread(one.events.close)
        try:
            one.take(GO)
        except Exception as error:
            assert type(error).__name__ == "LogClosedError"  # noqa: PT017
        await asyncio.sleep(0)
        assert SUCCESS not in one.told


# what the log holds


async def test_rows_of_a_later_version_and_odd_ones_are_counted_and_what_follows_is_done(
    tmp_path: Path, ran: list[str]
) -> None:
    good = Kept("a", "command", orjson.dumps(GO).decode(), 60, Now(NOW_MS, 0.0, "boot"))
    t, fields = good.reading()
    with opened(tmp_path, local=frozenset({INBOX})) as events:
        await events.consumer("downlink", [INBOX])
        log = events.stream(INBOX)
        odd = [
            {"kind": "firmware"},
            {"kind": None},
            {"expires_s": "soon"},
            {"monotonic_s": "x"},
            {"id": "older", "body": "{"},
            {"id": "listed", "body": "[1]"},
            {"id": "thingless", "body": '{"thing":"a/b"}'},
        ]
        await log.accepted(
            log.append_all([*((t, {**fields, **more}) for more in odd), (t, {"n": 1}), (t, fields)])
        )
    async with device(tmp_path) as one:
        found = await one.answers(4)
        assert one.inbox.counts["lost"] == 5
    assert [(answer["id"], answer["state"]) for answer in found] == [
        ("older", "refused"),
        ("listed", "refused"),
        ("thingless", "refused"),
        ("a", "done"),
    ]
    assert ran == ["a"]


async def test_a_reply_is_kept_for_a_device_that_asks(tmp_path: Path) -> None:
    async with device(tmp_path, config=DownlinkConfig(requests=True)) as one:
        replies = await one.events.consumer("test of replies", [REPLIES])
        one.take({"id": "reply-r1", "state": "answered", "body": "12 km"}, "reply")
        one.take({"id": "reply-r1", "state": "refused"}, "reply")
        (answer,) = await one.answers(1)
        chunk = await replies.read()
    assert (answer["id"], answer["kind"], answer["state"]) == ("reply-r1", "reply", "done")
    kept = [dict(fields) for item in chunk.items for _, fields in item.readings]  # type: ignore[union-attr]
    assert kept == [{"id": "r1", "state": "answered", "body": "12 km", "detail": ""}]


IDS = st.sampled_from(["a", "b", "c"])


@settings(max_examples=examples(10))
@given(st.lists(IDS, max_size=12))
def test_however_often_and_in_whichever_order_each_is_done_once(
    tmp_path_factory: pytest.TempPathFactory, ids: list[str]
) -> None:
    async def live() -> None:
        async with device(tmp_path_factory.mktemp("log")) as one:
            for key in ids:
                one.take({"id": key, "name": "rm"})
            answers = await one.answers(len(set(ids)))
            assert sorted(answer["id"] for answer in answers) == sorted(set(ids))
            assert one.inbox.counts["taken"] == len(set(ids))

    asyncio.run(live())
