"""The programs of docs/plain-devices.md, as they stand there, against a real broker and bridge:
each reading arrives once whatever dies, and whether the device is there is known.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from edgewake.protocol import topics
from edgewake.protocol.frames import record
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.frame import Frame
from edgewake.protocol.frames.stream import FieldInfo, Stream
from tests.bridge.micropython import interpreter
from tests.bridge.running import World, read, start
from tests.bridge.test_catalogue_topic import declare
from tests.services import Process, wait_until

SHIM = Path(__file__).with_name("arduino")
DOCUMENT = Path(__file__).parents[2] / "docs" / "plain-devices.md"


def program(name: str, replaced: dict[str, str]) -> str:
    """An example of the document, with what everybody changes in it changed."""
    text = DOCUMENT.read_text("utf-8")
    found = re.search(rf"<!-- example: {name} -->\n```\w+\n(.*?)```", text, re.DOTALL)
    assert found
    changed = found[1]
    for before, after in replaced.items():
        assert before in changed, before
        changed = changed.replace(before, after)
    return changed


def arduino(here: World, name: str, stream: str = "weather_arduino") -> list[str]:
    where = {
        "192.168.1.5": here.broker.host,
        "8710": str(here.broker.port),
        "shed": name,
        "weather": stream,
    }
    (here.folder / "sketch.ino").write_text(program("arduino", where))
    built = here.folder / "sketch"
    folders = ["-I", str(here.folder), "-I", str(SHIM)]
    strict = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]
    built_by = ["g++", *strict, *folders, str(SHIM / "main.cpp"), "-lmosquitto", "-o", str(built)]
    subprocess.run(built_by, check=True, capture_output=True, text=True)
    return [str(built)]


def micropython(here: World, name: str, stream: str = "weather_micropython") -> list[str]:
    """By MicroPython itself, or by CPython where there is no wheel of it."""
    where = {
        "192.168.1.5": here.broker.host,
        "8710": str(here.broker.port),
        '"shed"': f'"{name}"',
        "weather": stream,
    }
    file = here.folder / "main.py"
    file.write_text(program("micropython", where))
    if interpreter.IS_MADE_FOR_US:
        return interpreter.command(file)
    return [sys.executable, str(file)]


@pytest.mark.services
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(arduino, id="arduino", marks=pytest.mark.long),
        pytest.param(micropython, id="micropython"),
    ],
)
async def test_each_reading_arrives_once_though_bridge_and_device_die_and_its_state_is_known(
    here: World, kind: object
) -> None:
    assert callable(kind)
    name = f"shed-{kind.__name__}"
    bridge = here.bridge("bridge-1")
    here.sequencer()
    with Process(kind(here, name), here.folder / "device.log") as device:
        wait_until(lambda: states(here, name)[-1:] == ["online"], "it is online")
        wait_until(lambda: len(numbers(here, name)) >= 2, "readings arrive")
        bridge.signal(signal.SIGKILL)
        wait_until(lambda: not bridge.is_running(), "the bridge is dead")
        reached = numbers(here, name)[-1]
        start(bridge)
        wait_until(lambda: numbers(here, name)[-1] >= reached + 2, "it goes on")
        device.signal(signal.SIGKILL)
        wait_until(lambda: states(here, name)[-1:] == ["offline"], "its last will is known")
    found = numbers(here, name)
    assert found == list(range(1, found[-1] + 1)), "none lost, none twice"


@pytest.mark.services
@pytest.mark.parametrize(
    ("kind", "field"),
    [
        pytest.param(arduino, "raw", id="arduino"),
        pytest.param(micropython, "value", id="micropython", marks=pytest.mark.long),
    ],
)
async def test_a_value_of_another_type_holds_no_device_up(
    here: World, kind: object, field: str
) -> None:
    """It was told `later` until a person decided, and sent this one reading for ever."""
    assert callable(kind)
    name, stream = f"odd-{kind.__name__}", f"weather_odd_{kind.__name__}"
    here.bridge("bridge-1")
    declare(here, Stream(name=stream, fields={field: FieldInfo(type=FieldType.STRING)}))
    with Process(kind(here, name, stream), here.folder / "device.log"):
        wait_until(lambda: [one.seq for one in frames_up(here, name)][-1:] >= [3], "it goes on")
    for one in frames_up(here, name):  # those that it sent twice as well
        assert one.fields[field] == [None]
        assert one.fields[f"{field}_odd"][0]


def frames_up(here: World, name: str) -> list[Frame]:
    """What the bridge has taken of a device."""
    found = read(here.config, topics.UP, device=name)
    return [record.decode(one.value() or b"").frame for one in found]


def numbers(here: World, name: str) -> list[int]:
    """The numbers of its readings as everybody reads them."""
    found = read(here.config, topics.stream_topic(f"weather_{name[5:]}"), device=name)
    return [record.decode(one.value() or b"").frame.seq or 0 for one in found]


def states(here: World, name: str) -> list[str]:
    """What the cloud knew of it, one after the other."""
    found = read(here.config, topics.DEVICES, device=f"{name}|status")
    return [orjson.loads(one.value() or b"{}")["state"] for one in found]
