"""Maps that operations give to all bridges: versions on a real Kafka, in use at two bridges."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner, Result

from edgewake.cloud.bridge.config import BridgeConfig, MapsConfig
from edgewake.cloud.bridge.pushed_maps import BridgeMaps
from edgewake.deploy.cli import edgewake
from edgewake.protocol import topics
from edgewake.protocol.config import parse
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.frames import record
from edgewake.protocol.ops.pushed_maps import KEPT, PushedMaps, key_of
from tests.bridge.admission.test_mapped import send
from tests.bridge.running import World, start
from tests.bridge.topic_reader import TopicReader
from tests.ops.service import KEY, Ops, running
from tests.services import PATIENCE_S, wait_until

MAP: Final = '[[map]]\ntopic = "{0}/{{device}}/v"\ndevice = "{{device}}"\nstream = "{0}"\n'
VERSION: Final = "edgewake_bridge_maps_version"
BRIDGES: Final = ("b-pushed-1", "b-pushed-2")


def row(version: int, text: str) -> tuple[str, bytes]:
    made = PushedMaps(version=version, text=text, changed_at=1, changed_by="anna")
    return key_of(version, text), made.model_dump_json().encode()


def test_the_newest_version_is_in_use_and_one_that_cannot_be_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    maps = BridgeMaps(MapsConfig(presets=("tasmota",), pushed=True))
    of_file = maps.maps
    assert not maps.look()
    maps.follow(*row(2, MAP.format("pm2")))
    maps.follow(*row(1, MAP.format("pm1")))
    maps.follow("1|x", None)
    maps.follow(*row(2, MAP.format("pm9")))  # of another server, a moment later
    assert maps.look()
    assert (maps.version, maps.maps.filters) == (2, ("pm2/+/v",))
    assert not maps.look()
    maps.follow(*row(3, '[[map]]\ntopic = "ew/v1/#"\n'))
    with caplog.at_level(logging.ERROR):
        assert not maps.look()
    assert "version 3: keeping the previous maps" in caplog.text
    assert (maps.version, maps.maps.filters) == (2, ("pm2/+/v",))
    maps.follow(*row(4, ""))
    assert maps.look()
    assert (maps.version, maps.maps) == (0, of_file)


def test_a_row_under_another_s_key_is_none() -> None:
    maps = BridgeMaps(MapsConfig(pushed=True))
    with pytest.raises(ValueError, match=r"'7\|x' has version 1"):
        maps.follow("7|x", row(1, "")[1])
    assert maps.maps.filters == ()


def test_where_the_broker_knows_devices_pushed_maps_need_a_prefix() -> None:
    values = {"mqtt": {"username": "b", "share_key_file": "k"}, "maps": {"pushed": True}}
    with pytest.raises(ConfigError, match="prefix"):
        parse(BridgeConfig, values, "bridge")


def are_at(here: World, version: int) -> None:
    wait_until(
        lambda: all(here.metric(name, VERSION) == version for name in BRIDGES),
        f"both bridges use version {version}",
    )


async def arrives(here: World, stream: str, device: str) -> None:
    """A message of a device comes as a reading; its topic is subscribed to a moment later."""
    with TopicReader(here.config, topics.UP, device=f"p-{device}") as reader:
        async with asyncio.timeout(PATIENCE_S):
            while not (found := await asyncio.to_thread(reader.read)):
                await send(here, f"{stream}/{device}/v", '{"v": 1}')
    assert {record.decode(one.value() or b"").stream for one in found} == {stream}


async def test_maps_are_pushed_refused_taken_back_and_kept(here: World, tmp_path: Path) -> None:
    (tmp_path / "ops").mkdir()
    with running(here.node.bootstrap, tmp_path / "ops") as ops:
        for name in BRIDGES:
            here.bridge(name, mqtt='[maps]\npushed = true\nprefix = "p-"')
        await asyncio.to_thread(_refused, ops, tmp_path)
        await asyncio.to_thread(_pushed, ops, tmp_path / "maps.toml", "pm_a", 1)
        are_at(here, 1)
        await arrives(here, "pm_a", "one")
        await asyncio.to_thread(_pushed, ops, tmp_path / "maps.toml", "pm_b", 2)
        are_at(here, 2)
        await arrives(here, "pm_b", "two")
        stopped = here.parts[-1]
        assert await asyncio.to_thread(stopped.stop) == 0
        await asyncio.to_thread(start, stopped)
        are_at(here, 2)
        await asyncio.to_thread(_taken_back, ops)
        are_at(here, 3)
        await arrives(here, "pm_a", "three")
        await asyncio.to_thread(_bounded, ops)
        are_at(here, 4 + KEPT)
        wait_until(lambda: '"/v1/maps"' in ops.process.output(), "it is in the audit")


def run(ops: Ops, *words: str) -> Result:
    """`edgewake map`, in this process: a dozen of its own would take longer than all the rest."""
    env = {"EDGEWAKE_OPS_URL": ops.url, "EDGEWAKE_OPS_KEY": KEY, "COLUMNS": "200"}
    return CliRunner().invoke(edgewake, ["map", *words], env=env)


def _refused(ops: Ops, folder: Path) -> None:
    wrong = folder / "wrong.toml"
    wrong.write_text('[[map]]\ntopic = "a/{device}"\nstream = "Hall"\n')
    said = run(ops, "push", str(wrong))
    assert said.exit_code == 1
    assert "line 3" in said.stderr
    assert run(ops, "push").exit_code == 2, "neither a file nor --none"
    assert ops.client.get("/v1/maps").json() == {"items": []}


def _pushed(ops: Ops, file: Path, stream: str, version: int) -> None:
    """Pushed as made of the version before; as made of another one it is refused."""
    file.write_text(MAP.format(stream))
    stale = run(ops, "push", str(file), "--made-of", str(version + 6))
    assert (stale.exit_code, "(409 " in stale.stderr) == (1, True)
    said = run(ops, "push", str(file), "--made-of", str(version - 1))
    assert said.exit_code == 0, said.stderr
    assert f"version {version}," in said.stderr
    assert run(ops, "push", str(file)).exit_code == 0, "the same once more"
    newest = ops.client.get("/v1/maps").json()["items"][0]
    assert (newest["version"], newest["in_use"]) == (version, True)


def _taken_back(ops: Ops) -> None:
    assert run(ops, "back", "9").exit_code == 1
    assert run(ops, "back", "1").exit_code == 0
    assert run(ops, "show", "3").stdout == MAP.format("pm_a")
    assert "as version 1" in run(ops, "show").stdout


def _bounded(ops: Ops) -> None:
    for number in range(KEPT + 1):
        body = {"text": MAP.format("pm_a"), "description": f"{number}"}
        assert ops.client.put("/v1/maps", json=body).status_code == 200
    kept = [one["version"] for one in ops.client.get("/v1/maps").json()["items"]]
    assert kept == list(range(4 + KEPT, 4, -1))
    assert ops.client.get("/v1/maps/4").status_code == 404
