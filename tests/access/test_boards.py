"""What a reader is shown of a board: decided from grants alone."""

from __future__ import annotations

import pytest

from edgewake.cloud.access.boards import seen_by
from edgewake.cloud.rights.names import Names
from edgewake.cloud.rights.principal import ANYBODY, Action, Grant, Kind, Principal, Proof
from edgewake.protocol.ops.board import Board, Card

SPEED = Card(kind="value", source="position", field="speed")
OF_CAR_1 = Card(kind="chart", source="position", field="speed", device="car-1")
BATTERY = Card(kind="value", source="position", field="battery")
PAY = Card(kind="table", source="payroll")
TEXT = Card(kind="text", text="Call Ann")


def board(*cards: Card) -> Board:
    return Board(name="b", title="B", cards=cards, version=3, changed_at=1, changed_by="ann")


def reader(**grant: object) -> Principal:
    made = Grant(frozenset(Action), **grant)  # type: ignore[arg-type]
    return Principal("r", (made,), Proof(Kind.ANONYMOUS))


STREAM = Names.of(["position"])


@pytest.mark.parametrize(
    ("who", "seen"),
    [
        (ANYBODY, (SPEED, OF_CAR_1, BATTERY, PAY, TEXT)),
        (reader(streams=STREAM), (SPEED, OF_CAR_1, BATTERY, TEXT)),
        (reader(streams=STREAM, devices=Names.of(["car-2"])), (SPEED, BATTERY, TEXT)),
        (reader(streams=STREAM, fields=Names.of(["battery"])), (BATTERY, TEXT)),
        (reader(streams=Names.of(["payroll"])), (PAY, TEXT)),
    ],
)
def test_only_cards_of_what_may_be_read_are_there(who: Principal, seen: tuple[Card, ...]) -> None:
    found = seen_by(who, board(SPEED, OF_CAR_1, BATTERY, PAY, TEXT))
    assert found is not None
    assert found.cards == seen


@pytest.mark.parametrize("who", [reader(streams=Names.of(["other"])), reader(streams=Names.of([]))])
def test_who_may_read_none_of_it_is_not_told_that_there_is_a_board(who: Principal) -> None:
    assert seen_by(who, board(SPEED, PAY, TEXT)) is None


def test_texts_alone_are_no_board_for_readers() -> None:
    assert seen_by(ANYBODY, board(TEXT)) is None


def test_who_changed_it_is_not_told() -> None:
    found = seen_by(ANYBODY, board(SPEED))
    assert found is not None
    assert "ann" not in found.model_dump_json()
