"""Messages of a CAN bus, and a car that is asked."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import can
import pytest

from tests.edge.sources.cage import caged, configured

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
    finally:
        ended.set()
        thread.join()
        car.shutdown()


def test_a_bus_that_is_none_and_a_file_that_is_none_are_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`dbc` or `obd`"):
        configured("can")
    with pytest.raises(ValueError, match="expected some of"):
        configured("can", obd=["warp"])
