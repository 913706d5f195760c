"""What devices are asked and how it ended: rows and answers joined. Pure."""

from __future__ import annotations

import orjson
import pytest

from edgewake.cloud.ops.tables.device_commands import UNMATCHED_MAX, CommandTable
from edgewake.protocol.downlink.down_row import ENDED_MAX, DownRow, key_of
from edgewake.protocol.downlink.downlink import DownKind

NOW = 1_790_000_000_000


def row(message: str, *, asked_at: int = NOW, kind: DownKind = DownKind.COMMAND) -> DownRow:
    payload = orjson.dumps({"id": message, "name": "x"}).decode()
    return DownRow(
        device="car",
        kind=kind,
        payload=payload,
        asked_at=asked_at,
        expires_at=NOW + 1000,
        asked_by="me",
    )


def put(table: CommandTable, found: DownRow, message: str) -> None:
    table.put(key_of("car", message), found.model_dump_json().encode())


def reading(
    message: str = "a", device: str = "car", state: str = "done", kind: str = "command"
) -> dict[str, object]:
    return {
        "stream": "down_answers",
        "device": device,
        "received_at": NOW + 7,
        "t": 1,
        "id": message,
        "kind": kind,
        "state": state,
    }


@pytest.mark.parametrize("row_first", [True, False])
def test_an_answer_goes_into_its_row_whichever_is_read_first(row_first: bool) -> None:
    table = CommandTable()
    for is_row in (row_first, not row_first):
        if is_row:
            put(table, row("a"), "a")
        else:
            table.on_answer(reading())
    ((key, answered),) = table.answered()
    assert (key, answered.answered_at) == ("car|a", NOW + 7)
    assert answered.answer is not None
    put(table, answered, "a")
    assert list(table.answered()) == []
    # Sent again, or read again after a restart: the first one holds.
    table.on_answer(reading(state="failed"))
    assert list(table.answered()) == []


def test_a_device_answers_for_nobody_else_and_what_is_no_answer_is_none() -> None:
    table = CommandTable()
    put(table, row("a"), "a")
    table.on_answer(reading(device="other"))
    table.on_answer(reading(kind="settings"))
    for wrong in ({}, {"state": "excellent"}, {"id": 5}, {"exit_code": "x"}):
        with pytest.raises((ValueError, KeyError)):
            table.on_answer(
                {"device": "car", "received_at": 1, **({} if not wrong else reading()), **wrong}
            )
    assert list(table.answered()) == []


def test_answers_that_nobody_asked_for_are_bounded() -> None:
    table = CommandTable()
    for n in range(UNMATCHED_MAX + 5):
        table.on_answer(reading(f"x{n}"))
    assert len(table._answers) == UNMATCHED_MAX


def test_the_latest_come_first_and_only_the_oldest_that_ended_are_forgotten() -> None:
    table = CommandTable()
    for n in range(ENDED_MAX + 3):
        put(table, row(f"m{n}", asked_at=NOW + n), f"m{n}")
    assert [message for message, _ in table.of("car", DownKind.COMMAND)][:2] == [
        f"m{ENDED_MAX + 2}",
        f"m{ENDED_MAX + 1}",
    ]
    assert (table.open_of("car", NOW), table.to_forget("car", NOW)) == (ENDED_MAX + 3, [])
    assert table.to_forget("car", NOW + 1000) == ["car|m2", "car|m1", "car|m0"]
    for key in table.to_forget("car", NOW + 1000):
        table.put(key, None)
    assert table.get("car", "m0") is None


def test_only_the_gateway_that_was_asked_answers_for_a_thing() -> None:
    table = CommandTable()
    put(table, row("a").model_copy(update={"via": "gw-1"}), "a")
    table.on_answer({**reading(), "via": "gw-2"})
    table.on_answer(reading())
    assert list(table.answered()) == []
    table.on_answer({**reading(state="failed"), "via": "gw-1"})
    ((key, answered),) = table.answered()
    assert (key, answered.answer and answered.answer.state.value) == ("car|a", "failed")
