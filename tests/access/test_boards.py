"""What a reader is shown of a board: decided from grants alone."""

from __future__ import annotations

import pytest

from edgewake.cloud.access.boards import lines_for, seen_by
from edgewake.cloud.log.named import Named
from edgewake.cloud.rights.names import Names
from edgewake.cloud.rights.principal import ANYBODY, Action, Grant, Kind, Principal, Proof
from edgewake.cloud.rights.scope import Scope
from edgewake.protocol.ops.board import Board, Card
from edgewake.protocol.ops.device_note import DeviceNote

SPEED = Card(kind="value", source="position", field="speed")
OF_CAR_1 = Card(kind="chart", source="position", field="speed", device="car-1")
BATTERY = Card(kind="value", source="position", field="battery")
PAY = Card(kind="table", source="payroll")
TEXT = Card(kind="text", text="Call Ann")


GROUPS = {"yellow": ["car-1", "car-2", "van-1"], "far": ["car-9"]}


def in_group(name: str) -> list[str]:
    return GROUPS.get(name, [])


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
    found = seen_by(who, board(SPEED, OF_CAR_1, BATTERY, PAY, TEXT), in_group)
    assert found is not None
    assert tuple(Card(**one.model_dump(exclude={"members"})) for one in found.cards) == seen
    assert all(one.members is None for one in found.cards)


@pytest.mark.parametrize("who", [reader(streams=Names.of(["other"])), reader(streams=Names.of([]))])
def test_who_may_read_none_of_it_is_not_told_that_there_is_a_board(who: Principal) -> None:
    assert seen_by(who, board(SPEED, PAY, TEXT), in_group) is None


def test_texts_alone_are_no_board_for_readers() -> None:
    assert seen_by(ANYBODY, board(TEXT), in_group) is None


def test_who_changed_it_is_not_told() -> None:
    found = seen_by(ANYBODY, board(SPEED), in_group)
    assert found is not None
    assert "ann" not in found.model_dump_json()


def test_of_a_group_those_devices_are_named_that_their_reader_may_see() -> None:
    yellow = Card(kind="bars", source="position", field="speed", group="yellow")
    far = Card(kind="bars", source="position", field="speed", group="far")
    found = seen_by(ANYBODY, board(yellow, far), in_group)
    assert found is not None
    assert [one.members for one in found.cards] == [("car-1", "car-2", "van-1"), ("car-9",)]
    some = reader(streams=STREAM, devices=Names.of(["car-1", "car-2"]))
    found = seen_by(some, board(yellow, far), in_group)
    assert found is not None
    assert [one.members for one in found.cards] == [("car-1", "car-2")]
    assert "van-1" not in found.model_dump_json()
    assert "far" not in found.model_dump_json(), "a group of which they may see no device"
    assert seen_by(some, board(far), in_group) is None


@pytest.mark.parametrize(
    ("devices", "cards"), [(None, 2), (["car-1"], 1), (["car-*"], 2), (["bus-1"], 0)]
)
def test_a_group_is_looked_through_once_for_all_cards_of_all_boards(
    devices: list[str] | None, cards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    def groups(name: str) -> list[str]:
        looks.append(name)
        return in_group(name)

    asked: list[object] = []
    sees = Scope.sees

    def counted(scope: Scope, device: object) -> bool:
        asked.append(device)
        return sees(scope, device)

    monkeypatch.setattr(Scope, "sees", counted)
    yellow = Card(kind="bars", source="position", field="speed", group="yellow")
    far = yellow.model_copy(update={"group": "far"})
    boards = {name: board(yellow, far).model_copy(update={"name": name}) for name in "cba"}
    who = reader(streams=STREAM, devices=None if devices is None else Names.of(devices))
    found = lines_for(who, boards, groups)
    assert [(one.name, one.cards) for one in found] == [(name, cards) for name in "abc" if cards]
    assert looks == ["yellow", "far"]
    in_both = len(GROUPS["yellow"]) + len(GROUPS["far"])
    assert len(asked) == (in_both if devices == ["car-*"] else 0), "names are looked up at once"


def test_the_groups_are_those_that_operators_wrote() -> None:
    named = Named()
    note = DeviceNote(device="car-1", groups=("yellow", "vans"), changed_at=1)
    named.take_note("car-1", note.model_dump_json().encode())
    other = note.model_copy(update={"device": "car-0", "groups": ("yellow",)})
    named.take_note("car-0", other.model_dump_json().encode())
    assert (named.in_group("yellow"), named.in_group("vans")) == (("car-0", "car-1"), ("car-1",))
    assert named.in_group("yellow") is named.in_group("yellow"), "it is not sorted for each card"
    moved = note.model_copy(update={"groups": ("vans", "far")})
    named.take_note("car-1", moved.model_dump_json().encode())
    found = [named.in_group(name) for name in ("yellow", "vans", "far", "none")]
    assert found == [("car-0",), ("car-1",), ("car-1",), ()]
    named.take_note("car-1", None)
    assert (named.in_group("yellow"), named.in_group("vans")) == (("car-0",), ())
    with pytest.raises(ValueError, match="device"):
        named.take_note("car-2", b"{}")
