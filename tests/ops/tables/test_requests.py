"""What becomes of a request: decided from what is durable, so it is the same whoever was killed
before. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.ops.tables.device_commands import CommandTable
from edgewake.cloud.ops.tables.requests import FRESH_MAX, RequestTable, Write, replied
from edgewake.edge.downlink.ledger import DONE_MAX
from edgewake.protocol import topics
from edgewake.protocol.downlink.down_message import ReplyState
from edgewake.protocol.downlink.down_row import OPEN_BY_GATEWAY_MAX, DownRow, key_of
from edgewake.protocol.downlink.downlink import Answer, AnswerState, DownKind
from edgewake.protocol.downlink.request import ENDED_MAX, OPEN_MAX
from edgewake.protocol.downlink.request_row import REPLY_LIFE_MS, RequestRow

NOW = 1_790_000_000_000
Record = tuple[str, str, bytes | None]


def reading(key: str, **more: object) -> dict[str, object]:
    return {
        "device": "car",
        "received_at": NOW,
        "t": 1,
        "id": key,
        "name": "route",
        "body": "to the depot",
    } | more


class World:
    """The tables of an operations API that is killed and begun again, over topics that stay."""

    def __init__(self, served: Sequence[str] | None = None) -> None:
        self.served = served
        self.asked: list[list[dict[str, object]]] = []
        """Records of the stream's topic: the readings of each."""
        self.records: list[Record] = []
        """Of the two tables' topics."""
        self.begin()

    def begin(self) -> None:
        """A new life."""
        self.requests, self.down = RequestTable(self.served), CommandTable()
        for record in self.records:
            self._read(record)
        for offset, readings in enumerate(self.asked):
            self._read_asked(offset, readings)

    def _read(self, record: Record) -> None:
        topic, key, value = record
        (self.requests if topic == topics.REQUESTS else self.down).put(key, value)

    def _read_asked(self, offset: int, readings: Sequence[dict[str, object]]) -> None:
        for place, one in enumerate(readings):
            self.requests.on_request(one, 0, offset, place)

    def ask(self, *readings: dict[str, object]) -> None:
        """One record with so many requests."""
        self.asked.append(list(readings))
        self._read_asked(len(self.asked) - 1, readings)

    def write(self, write: Write) -> None:
        """One row, durable."""
        self.records.append(
            (
                write.topic,
                write.key,
                None if write.row is None else write.row.model_dump_json().encode(),
            )
        )
        self._read(self.records[-1])

    def settle(self, now_ms: int = NOW) -> list[Write]:
        """Write until nothing is due; what was written."""
        done: list[Write] = []
        while due := self.requests.due(self.down, now_ms):
            for write in due:
                self.write(write)
            done += due
        return done

    def reply(self, key: str, body: str = "12.4 km") -> None:
        """Somebody serves it."""
        row = self.requests.get("car", key)
        assert row is not None
        said = replied(row, ReplyState.ANSWERED, now_ms=NOW + 5, body=body, by="me")
        self.write(Write(topics.REQUESTS, key_of("car", key), said))

    def keep(self, key: str) -> None:
        """The device says that it has the reply."""
        row = self.down.get("car", f"reply-{key}")
        assert row is not None
        done = Answer(id=f"reply-{key}", kind=DownKind.REPLY, state=AnswerState.DONE)
        self.write(
            Write(
                topics.DOWN,
                key_of("car", f"reply-{key}"),
                row.model_copy(update={"answer": done, "answered_at": NOW + 9}),
            )
        )

    def states(self) -> dict[str, str]:
        """By id."""
        return {
            row.id: "open" if row.reply is None else row.reply.state.value
            for row in self.requests.all()
        }

    def replies(self) -> list[str]:
        """Rows that ever brought a reply to the device, in order."""
        return [
            key
            for topic, key, value in self.records
            if topic == topics.DOWN and value and DownRow.model_validate_json(value).answer is None
        ]


def test_a_request_is_open_until_it_is_answered_and_delivered_once() -> None:
    world = World()
    world.ask(reading("a"), reading("b"))
    world.settle()
    assert world.states() == {"a": "open", "b": "open"}
    world.reply("a")
    world.settle()
    row = world.down.get("car", "reply-a")
    assert row is not None
    assert (
        row.payload == '{"id":"reply-a","state":"answered","body":"12.4 km","detail":"","thing":""}'
    )
    assert (row.kind, row.expires_at) == (DownKind.REPLY, NOW + 5 + REPLY_LIFE_MS)
    world.keep("a")
    world.settle()
    delivered = world.requests.get("car", "a")
    assert delivered is not None
    assert delivered.delivered_at == NOW + 9
    world.ask(reading("a"), reading("a", body="another"))
    assert world.settle() == []
    assert world.replies() == ["car|reply-a"]


@given(st.integers(0, 30), st.integers(0, 30))
def test_a_kill_between_any_two_writes_leaves_each_request_taken_once_and_each_reply_sent_once(
    first: int, second: int
) -> None:
    """Two requests stand in one record, so a row of the first does not say that the second has
    one.
    """
    world = World()
    world.ask(reading("a"), reading("b"))
    world.ask(reading("c", name="x" * 200))
    served: set[str] = set()
    for left in (first, second, 1000):
        world.begin()
        while left > 0:
            due = world.requests.due(world.down, NOW)
            for write in due[:left]:
                world.write(write)
            left -= max(1, len(due))
            for key, state in world.states().items():
                if state == "open" and left > 0:
                    world.reply(key)
                    served.add(key)
            for key in ("a", "b", "c"):
                row = world.down.get("car", f"reply-{key}")
                if row is not None and row.answer is None:
                    world.keep(key)
            if not due and all(row.delivered_at for row in world.requests.all()):
                break
    assert served == {"a", "b"}
    assert world.states() == {"a": "answered", "b": "answered", "c": "refused"}
    assert sorted(world.replies()) == ["car|reply-a", "car|reply-b", "car|reply-c"]


def test_without_its_place_in_the_record_a_request_would_be_lost() -> None:
    """The control of the one above."""
    world = World()
    world.ask(reading("a"), reading("b"))
    world.write(world.requests.due(world.down, NOW)[0])
    world.begin()
    for place, one in enumerate(world.asked[0]):
        world.requests._fresh.clear()
        world.requests.on_request(one, 0, 0, 0)
        assert not world.requests._fresh, place


def test_what_nobody_serves_is_refused_at_once_and_says_who_is_served() -> None:
    world = World(served=("weather", "map"))
    world.ask(reading("a"), reading("b", name="map"))
    world.settle()
    row = world.requests.get("car", "a")
    assert row is not None
    assert row.reply is not None
    assert (row.reply.state, row.reply.detail) == (
        ReplyState.REFUSED,
        "nobody serves 'route'; served: map, weather",
    )
    assert world.states()["b"] == "open"


def test_what_nobody_answers_in_time_is_over_and_the_device_is_told() -> None:
    world = World()
    world.ask(reading("a", expires_s=60), reading("b"))
    world.settle(NOW + 59_999)
    assert world.states() == {"a": "open", "b": "open"}
    world.settle(NOW + 60_000)
    assert world.states() == {"a": "expired", "b": "open"}
    assert world.replies() == ["car|reply-a"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"name": "no name"}, "name: "),
        ({"expires_s": 0}, "expires_s: "),
        ({"expires_s": 1e9}, "expires_s: "),
        ({"body": "x" * 8193}, "body: "),
    ],
)
def test_a_wrong_request_is_refused_with_what_is_wrong(wrong: dict[str, object], says: str) -> None:
    world = World()
    world.ask(reading("a", **wrong))
    world.settle()
    row = world.requests.get("car", "a")
    assert row is not None
    assert row.reply is not None
    assert (row.reply.state, row.reply.detail[: len(says)]) == (ReplyState.REFUSED, says)


@pytest.mark.parametrize("key", [None, "", "a b", "x" * 57, 7])
def test_a_request_without_an_id_can_be_answered_by_nobody(key: object) -> None:
    with pytest.raises((ValueError, KeyError)):
        RequestTable().on_request(
            {name: value for name, value in reading("a", id=key).items() if value is not None},
            0,
            0,
            0,
        )


def test_a_device_that_asks_for_too_much_is_refused_and_nobody_else() -> None:
    world = World()
    world.ask(*(reading(f"i{n}") for n in range(OPEN_MAX + 1)), reading("a", device="other"))
    world.settle()
    assert [key for key, state in world.states().items() if state == "refused"] == [f"i{OPEN_MAX}"]
    assert world.states()["a"] == "open"


def test_more_than_is_taken_at_once_is_left_out_and_counted() -> None:
    table = RequestTable()
    for n in range(FRESH_MAX + 3):
        table.on_request(reading(f"i{n}"), 0, 0, n)
    assert (len(table.due(CommandTable(), NOW)), table.left_out) == (FRESH_MAX, 3)


def test_the_oldest_that_ended_are_forgotten_and_are_not_taken_again() -> None:
    world = World()
    for n in range(ENDED_MAX + 3):
        world.ask(reading(f"i{n}"))
        world.settle()
        world.reply(f"i{n}")
        world.settle()
        world.keep(f"i{n}")
        world.settle()
    assert len(world.states()) == ENDED_MAX
    assert {"i0", "i1", "i2"}.isdisjoint(world.states())
    assert world.down.get("car", "reply-i0") is None
    world.begin()
    assert world.settle() == []
    assert len(world.replies()) == ENDED_MAX + 3


def test_a_reply_to_a_device_that_sleeps_too_long_is_given_up() -> None:
    world = World()
    world.ask(reading("a"))
    world.settle()
    world.reply("a")
    world.settle()
    row = world.down.get("car", "reply-a")
    assert row is not None
    assert row.waits_at(NOW + 5 + REPLY_LIFE_MS - 1)
    assert not row.waits_at(NOW + 5 + REPLY_LIFE_MS)
    assert world.settle(NOW + 5 + REPLY_LIFE_MS) == []


def test_a_row_is_what_was_written() -> None:
    world = World()
    world.ask(reading("a"))
    (write,) = world.settle()
    assert write.row == RequestRow(
        device="car",
        id="a",
        name="route",
        body="to the depot",
        received_at=NOW,
        expires_at=NOW + 86_400_000,
        partition=0,
        offset=0,
    )


def test_a_request_that_a_bridge_cut_is_refused_with_its_reason_and_the_next_waits() -> None:
    world = World()
    world.ask(
        reading("good"),
        reading("cut", body=None, wrong="field 'body_to': expected none, found a string"),
    )
    for write in world.requests.due(world.down, NOW):
        world.write(write)
    rows = {row.id: row for row in world.requests.of("car")}
    assert rows["good"].reply is None
    assert rows["cut"].reply is not None
    assert (rows["cut"].reply.state, rows["cut"].reply.detail) == (
        ReplyState.REFUSED,
        "field 'body_to': expected none, found a string",
    )


def of_thing(thing: str, key: str, gateway: str = "gw") -> dict[str, object]:
    return reading(key, device=thing, via=gateway)


def down_rows(table: RequestTable, down: CommandTable) -> list[DownRow]:
    """The replies that are due, written."""
    found = [one for one in table.due(down, NOW) if isinstance(one.row, DownRow)]
    for one in found:
        assert one.row is not None
        down.put(one.key, one.row.model_dump_json().encode())
    return [one.row for one in found if isinstance(one.row, DownRow)]


def test_a_things_reply_goes_to_the_gateway_that_it_asked_by() -> None:
    world = World(served=())
    world.ask(of_thing("meter-1", "r"), of_thing("meter-2", "r"), reading("r"))
    for write in world.requests.due(world.down, NOW):
        world.write(write)
        world._read(world.records[-1])
    rows = {row.device: row for row in down_rows(world.requests, world.down)}
    assert {name: (row.sent_to, row.via) for name, row in rows.items()} == {
        "meter-1": ("gw", "gw"),
        "meter-2": ("gw", "gw"),
        "car": ("car", ""),
    }
    things = {name: row.message.thing for name, row in rows.items()}  # type: ignore[union-attr]
    assert things == {"meter-1": "meter-1", "meter-2": "meter-2", "car": ""}


def test_a_gateway_has_so_many_replies_to_answer_and_the_rest_wait() -> None:
    """A device remembers 500 messages as done; what it forgot it would do again."""
    assert OPEN_BY_GATEWAY_MAX + OPEN_MAX < DONE_MAX
    table, down = RequestTable(served=()), CommandTable()
    for n in range(OPEN_BY_GATEWAY_MAX + 5):
        table.on_request(of_thing(f"meter-{n}", "r"), 0, n, 0)
    table.on_request(of_thing("meter", "r", "other"), 0, 10_000, 0)
    for write in table.due(down, NOW):
        assert isinstance(write.row, RequestRow)
        table.put(write.key, write.row.model_dump_json().encode())
    first = down_rows(table, down)
    assert [row.via for row in first].count("gw") == OPEN_BY_GATEWAY_MAX
    assert [row.via for row in first].count("other") == 1, "another gateway is not held up"
    assert down_rows(table, down) == []
    answer = Answer(id="reply-r", kind=DownKind.REPLY, state=AnswerState.DONE)
    for row in first[:3]:
        said = row.model_copy(update={"answer": answer, "answered_at": NOW})
        down.put(key_of(row.device, "reply-r"), said.model_dump_json().encode())
    assert len(down_rows(table, down)) == 3
