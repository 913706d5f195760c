"""Messages of a CAN bus, and a car that is asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import can
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.intake.field_book import FieldBook
from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.sources.machines import can_bus, j1939_transport
from edgewake.edge.sources.machines.can_bus import Dbc, time_of
from edgewake.edge.sources.machines.j1939_transport import Transport
from edgewake.protocol.clock import FakeClock
from tests.edge.sources.cage import caged, configured
from tests.edge.sources.sink import MemorySink, intake_of

NOW_MS = 1_790_000_000_000

DBC = """VERSION ""
NS_ :
BS_:
BU_: ECU
BO_ 256 Engine: 8 ECU
 SG_ Speed : 0|16@1+ (0.1,0) [0|6553.5] "km/h" ECU
 SG_ Temp : 16|8@1- (1,0) [-128|127] "C" ECU
 SG_ Gear : 24|8@1+ (1,0) [0|8] "" ECU
VAL_ 256 Gear 0 "Neutral" 1 "First" ;
"""


async def test_messages_of_a_bus_are_read_by_a_dbc_file_and_not_more_often_than_wanted(
    tmp_path: Path,
) -> None:
    (tmp_path / "car.dbc").write_text(DBC)
    channel = f"dbc-{tmp_path.name}"
    keys = {"interface": "virtual", "channel": channel, "dbc": str(tmp_path / "car.dbc")}
    sender = can.Bus(interface="virtual", channel=channel)
    try:
        async with caged(tmp_path / "log", configured("can", interval_s=0.0, **keys)) as one:
            data = bytes([0xE8, 0x03, 0xF6, 0x01, 0, 0, 0, 0])

            def is_heard() -> bool:
                for number in (0x100, 0x200):
                    sender.send(can.Message(arbitration_id=number, data=data, is_extended_id=False))
                return bool(one.times())

            await one.until(is_heard, "a reading")
            assert (one.column("Speed")[0], one.column("Temp")[0]) == (100.0, -10)
            assert (one.column("Gear")[0], one.column("message")[0]) == ("First", "Engine")
        async with caged(tmp_path / "log2", configured("can", interval_s=3600.0, **keys)) as one:
            await one.until(lambda: (is_heard() and False) or bool(one.intake.taken), "a reading")
            for _ in range(50):
                is_heard()
            await asyncio.sleep(0.5)  # several turns of the thread: no condition says that
            assert one.intake.taken == 1
    finally:
        sender.shutdown()


async def test_a_car_is_asked_by_obd(tmp_path: Path) -> None:
    channel = f"obd-{tmp_path.name}"
    car = can.Bus(interface="virtual", channel=channel)
    ended = threading.Event()
    answers = {0x0C: [0x1A, 0xF8], 0x0D: [50], 0x05: [130]}

    def drive() -> None:
        while not ended.is_set():
            asked = car.recv(0.05)
            if asked is None or asked.arbitration_id != 0x7DF:
                continue
            pid = asked.data[2]
            said = [2 + len(answers[pid]), 0x41, pid, *answers[pid]]
            car.send(can.Message(arbitration_id=0x7E8, data=said, is_extended_id=False))

    thread = threading.Thread(target=drive)
    thread.start()
    keys = {"interface": "virtual", "channel": channel, "interval_s": 0.1}
    try:
        wanted = ["rpm", "speed", "coolant_temperature"]
        async with caged(tmp_path / "log", configured("can", obd=wanted, **keys)) as one:
            await one.until(lambda: len(one.column("rpm")) >= 2, "two readings")
            found = {name: one.column(name)[1] for name in wanted}
            assert found == {"rpm": 1726.0, "speed": 50, "coolant_temperature": 90}
            known = {"rpm": "rpm", "speed": "km/h", "coolant_temperature": "°C"}
            assert one.units() == known
    finally:
        ended.set()
        thread.join()
        car.shutdown()


def test_a_bus_that_is_none_and_a_file_that_is_none_are_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`dbc` or `obd`"):
        configured("can")
    with pytest.raises(ValueError, match="expected some of"):
        configured("can", obd=["warp"])


PAGES = """VERSION ""
NS_ :
BS_:
BU_: ECU
BO_ 300 Cells: 8 ECU
 SG_ Page M : 0|8@1+ (1,0) [0|9] "" ECU
 SG_ CellA m0 : 8|8@1+ (1,0) [0|255] "" ECU
 SG_ CellB m1 : 8|8@1+ (1,0) [0|255] "" ECU
 SG_ message : 16|8@1+ (1,0) [0|255] "" ECU
"""
# 0x8CF004FE: EEC1, group 61444, as files have it: from the source address that means none.
TRUCK = """VERSION ""
NS_ :
BS_:
BU_: ECU
BO_ 2364540158 EEC1: 8 Vector__XXX
 SG_ EngineSpeed : 24|16@1+ (0.125,0) [0|8031.875] "rpm" ECU
BA_DEF_ BO_ "VFrameFormat" ENUM "StandardCAN","ExtendedCAN","reserved","J1939PG";
BA_DEF_DEF_ "VFrameFormat" "J1939PG";
"""


def read(folder: Path, text: str, *frames: can.Message) -> list[dict[str, Any]]:
    """What of these frames, which came within a second, is taken."""
    file = folder / "file.dbc"
    file.write_text(text)
    dbc = Dbc(configured("can", dbc=str(file), interval_s=1.0))
    return dbc.bodies(frames, NOW_MS + 1000, intake_of(MemorySink()))


def frame(number: int, at_ms: int, *data: int, extended: bool = False) -> can.Message:
    time_s = (NOW_MS + at_ms) / 1000
    padded = bytes(data).ljust(8, bytes(1))
    return can.Message(
        arbitration_id=number, data=padded, is_extended_id=extended, timestamp=time_s
    )


def test_each_page_of_a_multiplexed_message_has_its_turn_and_its_time(tmp_path: Path) -> None:
    frames = [frame(300, 10 * n, n % 2, 20 + n, 7) for n in range(4)]
    assert read(tmp_path, PAGES, *frames, frame(300, 1000, 0, 30, 7)) == [
        {"message": "Cells", "message_": 7, "Page": 0, "CellA": 20, "t": NOW_MS},
        {"message": "Cells", "message_": 7, "Page": 1, "CellB": 21, "t": NOW_MS + 10},
        {"message": "Cells", "message_": 7, "Page": 0, "CellA": 30, "t": NOW_MS + 1000},
    ]


def test_units_of_a_truck_are_known_by_their_group_and_told_apart_by_their_address(
    tmp_path: Path,
) -> None:
    speed = [0, 0, 0, 0x80, 0x25]
    frames = [
        frame(0x0CF00400, 0, *speed, extended=True),
        frame(0x0CF00401, 10, *speed, extended=True),
        frame(0x0CF00400, 20, *speed, extended=True),
        frame(0x0CF00500, 30, *speed, extended=True),
        frame(0x400, 40, *speed),
    ]
    assert read(tmp_path, TRUCK, *frames) == [
        {"message": "EEC1", "source_address": 0, "EngineSpeed": 1200.0, "t": NOW_MS},
        {"message": "EEC1", "source_address": 1, "EngineSpeed": 1200.0, "t": NOW_MS + 10},
    ]


def test_a_standard_and_an_extended_frame_of_one_number_are_two_messages(tmp_path: Path) -> None:
    found = read(tmp_path, DBC, frame(256, 0, 10), frame(256, 1, 10, extended=True))
    assert [one["t"] for one in found] == [NOW_MS]


def test_a_time_of_an_adapter_that_counts_from_its_start_is_not_taken() -> None:
    assert time_of(can.Message(timestamp=12.5), NOW_MS) == NOW_MS
    assert time_of(can.Message(timestamp=NOW_MS / 1000 - 2), NOW_MS) == NOW_MS - 2000


def test_a_group_of_another_priority_is_of_the_same_unit(tmp_path: Path) -> None:
    speed = [0, 0, 0, 0x80, 0x25]
    frames = [
        frame(number, at_ms, *speed, extended=True)
        for at_ms, number in enumerate((0x0CF00400, 0x18F00400))
    ]
    assert [one["t"] for one in read(tmp_path, TRUCK, *frames)] == [NOW_MS]


def test_of_one_group_the_message_of_the_source_address_is_looked_for_first(tmp_path: Path) -> None:
    """The file's last message of a group was that of all."""
    other = """BO_ 2364539907 Gearbox: 8 Vector__XXX
 SG_ ShaftSpeed : 24|16@1+ (0.125,0) [0|8031.875] "rpm" ECU
"""
    text = TRUCK.replace("BA_DEF_ BO_", other + "BA_DEF_ BO_", 1)
    speed = [0, 0, 0, 0x80, 0x25]
    frames = [frame(0x0CF00400 + address, address, *speed, extended=True) for address in (0, 3)]
    found = [(one["message"], one["source_address"]) for one in read(tmp_path, text, *frames)]
    assert found == [("EEC1", 0), ("Gearbox", 3)]


def test_a_file_that_is_of_j1939_as_a_whole_is_read_by_groups(tmp_path: Path) -> None:
    speed = frame(0x18F00407, 0, 0, 0, 0, 0x80, 0x25, extended=True)
    found = read(tmp_path, of_j1939(TRUCK), speed)
    assert [(one["EngineSpeed"], one["source_address"]) for one in found] == [(1200.0, 7)]


def of_j1939(text: str) -> str:
    """The file says of itself as a whole that it is J1939, and nothing of its messages."""
    text = text.replace(
        'BA_DEF_ BO_ "VFrameFormat" ENUM "StandardCAN","ExtendedCAN","reserved","J1939PG";\n',
        'BA_DEF_ "ProtocolType" STRING ;\n',
    )
    return text.replace(
        'BA_DEF_DEF_ "VFrameFormat" "J1939PG";',
        'BA_DEF_DEF_ "ProtocolType" "";\nBA_ "ProtocolType" "J1939";',
    )


def test_messages_that_differ_in_their_receiver_alone_are_told_apart(tmp_path: Path) -> None:
    """The first of their group was that of all; a frame of 11 bits had a made-up source."""
    extended = 1 << 31
    more = f"""BO_ {0x18EF1005 | extended} ToX: 8 Vector__XXX
 SG_ X : 0|8@1+ (1,0) [0|255] "" ECU

BO_ {0x18EF2005 | extended} ToY: 8 Vector__XXX
 SG_ Y : 0|8@1+ (10,0) [0|2550] "" ECU

BO_ 300 Short: 8 Vector__XXX
 SG_ Z : 0|8@1+ (1,0) [0|255] "" ECU
"""
    text = of_j1939(TRUCK.replace("BA_DEF_ BO_", more + "BA_DEF_ BO_", 1))
    numbers = (0x18EF2005, 0x18EF1005)
    frames = [frame(number, n, 7, extended=True) for n, number in enumerate(numbers)]
    found = [
        {name: one.get(name) for name in ("X", "Y", "Z", "source_address")}
        for one in read(tmp_path, text, *frames, frame(300, 2, 7))
    ]
    assert found == [
        {"X": None, "Y": 70, "Z": None, "source_address": 5},
        {"X": 7, "Y": None, "Z": None, "source_address": 5},
        {"X": None, "Y": None, "Z": 7, "source_address": None},
    ]


def test_pages_that_are_remembered_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(can_bus, "PAGES_MAX", 2)
    frames = [frame(300, n, page, 20, 7) for n, page in enumerate((0, 1, 2, 0, 2))]
    found = read(
        tmp_path,
        PAGES.replace(" SG_ message", ' SG_ CellC m2 : 8|8@1+ (1,0) [0|255] "" ECU\n SG_ message'),
        *frames,
    )
    assert [one["Page"] for one in found] == [0, 1, 2, 0], "the longest quiet one was forgotten"


# 0x98FECAFE: DM1, group 65226, which has more than eight bytes where there are several faults.
FAULTS = TRUCK.replace(
    "BA_DEF_ BO_",
    """BO_ 2566834942 DM1: 14 Vector__XXX
 SG_ Lamp : 0|8@1+ (1,0) [0|255] "" ECU
 SG_ First : 16|16@1+ (1,0) [0|65535] "" ECU
 SG_ Last : 104|8@1+ (1,0) [0|255] "V" ECU
BA_DEF_ BO_""",
)


def announced(word: int, size: int, receiver: int = 0xFF, at_ms: int = 0) -> can.Message:
    number = 0x1CEC0000 | receiver << 8 | 0x21
    frames = -(-size // 7)
    return frame(number, at_ms, word, size, 0, frames, 0xFF, 0xCA, 0xFE, 0, extended=True)


def carried(number: int, *data: int, receiver: int = 0xFF, at_ms: int = 1) -> can.Message:
    return frame(0x1CEB0000 | receiver << 8 | 0x21, at_ms, number, *data, extended=True)


WHOLE = {"message": "DM1", "source_address": 0x21, "Lamp": 4, "First": 0x0201, "Last": 9}


async def test_a_message_in_several_frames_of_a_bus_is_put_together(tmp_path: Path) -> None:
    (tmp_path / "truck.dbc").write_text(FAULTS)
    channel = f"bam-{tmp_path.name}"
    keys = {"interface": "virtual", "channel": channel, "dbc": str(tmp_path / "truck.dbc")}
    sender = can.Bus(interface="virtual", channel=channel)
    try:
        async with caged(tmp_path / "log", configured("can", interval_s=0.0, **keys)) as one:

            def is_heard() -> bool:
                speed = frame(0x0CF00400, 5, 0, 0, 0, 0x80, 0x25, extended=True)
                parts = (carried(1, 4, 0, 1, 2), carried(2, 0, 0, 0, 0, 0, 0, 9))
                for each in (announced(32, 14), parts[0], speed, parts[1]):
                    each.timestamp = 0.0  # as it comes
                    sender.send(each)
                return "DM1" in one.column("message")

            await one.until(is_heard, "a reading")
            row = one.column("message").index("DM1")
            assert {name: one.column(name)[row] for name in WHOLE} == WHOLE
            assert one.units()["Last"] == "V"
            assert "EEC1" in one.column("message"), "what comes between its frames is read as well"
    finally:
        sender.shutdown()


@pytest.mark.parametrize("receiver", [0xFF, 0x30])
def test_frames_to_all_and_to_one_unit_are_put_together_in_any_order(
    tmp_path: Path, receiver: int
) -> None:
    word = 32 if receiver == 0xFF else 16
    parts = [
        carried(1, 4, 0, 1, 2, receiver=receiver, at_ms=2),
        carried(2, 0, 0, 0, 0, 0, 0, 9, receiver=receiver, at_ms=2),
    ]
    order = parts if receiver == 0xFF else parts[::-1]
    found = read(tmp_path, FAULTS, announced(word, 14, receiver), *order)
    assert found == [WHOLE | {"t": NOW_MS + 2}]


def lost(folder: Path, *frames: can.Message) -> tuple[list[dict[str, Any]], Mapping[str, int]]:
    (folder / "file.dbc").write_text(FAULTS)
    dbc = Dbc(configured("can", dbc=str(folder / "file.dbc"), interval_s=0.0))
    intake = intake_of(MemorySink())
    return dbc.bodies(frames, NOW_MS, intake), intake.remarks


FIRST, LAST = carried(1, 4, 0, 1, 2), carried(2, 0, 0, 0, 0, 0, 0, 9)


@pytest.mark.parametrize(
    "frames",
    [
        (announced(32, 14), LAST),
        (announced(32, 14), FIRST, announced(32, 14)),
        (announced(32, 14), FIRST, carried(3, 1)),
        (announced(32, 14), FIRST, carried(2, 0, at_ms=2000)),
        (announced(32, 14), FIRST, announced(255, 14)),
    ],
    ids=["missing", "again", "number", "late", "abort"],
)
def test_a_message_that_a_frame_is_missing_of_is_said(
    tmp_path: Path, frames: tuple[can.Message, ...]
) -> None:
    assert lost(tmp_path, *frames) == ([], {"DM1: a frame of several is missing": 1})


@pytest.mark.parametrize(
    "frames",
    [
        (FIRST, LAST),
        (announced(32, 8), FIRST, LAST),
        (announced(17, 14), FIRST, LAST),
        (frame(0x1CECFF21, 0, 32, 14, 0, 2, 0xFF, 5, 0xF0, 0, extended=True), FIRST, LAST),
    ],
    ids=["unannounced", "short", "answer", "of another group"],
)
def test_frames_of_no_message_of_the_file_are_passed_over(
    tmp_path: Path, frames: tuple[can.Message, ...]
) -> None:
    assert lost(tmp_path, *frames) == ([], {})


def test_messages_that_are_put_together_at_a_time_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(j1939_transport, "OPEN_MAX", 2)
    missing: list[int] = []
    transport = Transport({0xFECA}, missing.append)
    begin = bytes([32, 14, 0, 2, 0xFF, 0xCA, 0xFE, 0])
    for sender in (1, 2, 3):
        assert transport.take(0x1CECFF00 | sender, begin, 0) is None
    assert missing == [0xFECA]
    for sender, is_whole in ((1, False), (3, True)):
        transport.take(0x1CEBFF00 | sender, bytes([1, *range(7)]), 1)
        found = transport.take(0x1CEBFF00 | sender, bytes([2, *range(7)]), 1)
        assert (found is not None) is is_whole


@given(st.lists(st.tuples(st.sampled_from([0x1CECFF21, 0x1CEBFF21, 0x1CEC3021, 0x1CEB3021]),
    st.binary(min_size=7, max_size=8), st.integers(0, 3000)), max_size=40))  # fmt: skip
def test_no_frames_raise(frames: list[tuple[int, bytes, int]]) -> None:
    transport = Transport(range(1 << 24), lambda _: None)
    for number, data, t_ms in frames:
        found = transport.take(number, data, t_ms)
        assert found is None or len(found.data) in j1939_transport.SIZE


def test_units_of_signals_are_known(tmp_path: Path) -> None:
    (tmp_path / "file.dbc").write_text(TRUCK)
    dbc = Dbc(configured("can", dbc=str(tmp_path / "file.dbc")))
    book = FieldBook()
    intake = Intake("source", MemorySink(), Policy.BLOCK, FakeClock(), book=book)
    speed = frame(0x0CF00400, 5, 0, 0, 0, 0x80, 0x25, extended=True)
    assert len(dbc.bodies([speed], NOW_MS, intake)) == 1
    assert book.said() == {"EngineSpeed": {"unit": "rpm"}}
