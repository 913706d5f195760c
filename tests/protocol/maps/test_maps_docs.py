"""The examples of docs/maps.md, docs/devices.md and its pages do what stands there."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Final

import pytest

from edgewake.cloud.bridge.config import BridgeConfig, MapsConfig
from edgewake.edge.config import AgentConfig
from edgewake.protocol.config import parse
from edgewake.protocol.maps import presets
from edgewake.protocol.maps.compiling import compile_maps, compile_presets
from edgewake.protocol.maps.preview import lines, preview

DOCS: Final = Path(__file__).parents[3] / "docs"
NOW_MS: Final = 1_790_000_000_000


def example(file: str, name: str, kind: str) -> str:
    text = (DOCS / file).read_text()
    found = re.search(rf"<!-- example: {name} -->\n```{kind}\n(.*?)```", text, re.DOTALL)
    assert found is not None, name
    return found[1]


def test_the_map_and_what_it_is_said_to_make_of_a_message() -> None:
    maps = compile_maps(example("maps.md", "map", "toml"), needs_names=True)
    command, said = re.split(r"\n(?=factory)", example("maps.md", "map try", "console"), maxsplit=1)
    words = shlex.split(command.removeprefix("$ "))
    topic, payload = words[words.index("--topic") + 1], words[-1]
    seen = preview(maps, topic, payload.encode(), now_ms=NOW_MS - 1)
    found = "\n".join(lines(maps, topic, seen, NOW_MS - 1)).replace(maps.version, "…")
    assert found == said.strip("\n")


def test_presets_at_an_agent_and_at_a_bridge() -> None:
    parse(AgentConfig, tomllib.loads(example("devices.md", "preset at an agent", "toml")), "agent")
    values = tomllib.loads(example("devices.md", "preset at a bridge", "toml"))["maps"]
    config = parse(MapsConfig, values, "bridge")
    assert compile_presets(config.presets, zone=config.zone, needs_names=True).filters


def test_maps_at_other_sources() -> None:
    parse(AgentConfig, tomllib.loads(example("maps.md", "maps at other sources", "toml")), "agent")


def test_a_bridge_that_takes_http() -> None:
    values = tomllib.loads(example("devices.md", "a bridge that takes HTTP", "toml"))
    config = parse(BridgeConfig, values, "bridge")
    assert config.http.port == 8086
    assert compile_presets(config.http.map_presets, needs_names=True).filters


PAGES: Final = sorted((DOCS / "devices").glob("*.md"))
SECTIONS: Final = ("In Edgewake", "What comes of it", "What is not read")
EXAMPLE: Final = re.compile(r"<!-- example: ([^>]+) -->\n```toml\n(.*?)```", re.DOTALL)


def test_hosts_of_sparkplug() -> None:
    page = "devices/sparkplug.md"
    values = tomllib.loads(example(page, "a host of Sparkplug at the bridges", "toml"))
    assert parse(BridgeConfig, values, "bridge").sparkplug.host_id == "edgewake"
    values = tomllib.loads(example(page, "a host of Sparkplug", "toml"))
    parse(AgentConfig, values, "agent")


def test_each_preset_has_a_page_to_which_the_table_leads() -> None:
    table = (DOCS / "devices.md").read_text()
    for name in presets.names():
        found = re.search(rf"\[`{name}`\]\(devices/([\w-]+\.md)\)", table)
        assert found is not None, name
        text = (DOCS / "devices" / found[1]).read_text()
        assert re.search(rf"<!-- generated: preset-fields [^>]*\b{name}\b", text), name
        assert f'"{name}"' in text or f"`{name}`" in text or name == "thingsboard", name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_what_to_set_on_both_sides_and_what_is_not_read(page: Path) -> None:
    found = re.findall(r"(?m)^## (.+)$", page.read_text())
    assert found[0] in ("On the device", "On the node")
    assert [one for one in found if one in SECTIONS] == list(SECTIONS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_s_lines_are_configurations(page: Path) -> None:
    """Those of a bridge compile as there, where each map has to name device and stream."""
    found = EXAMPLE.findall(page.read_text())
    assert found
    for name, text in found:
        values = tomllib.loads(text)
        if "source" in values:
            parse(AgentConfig, values, f"{page.stem}: {name}")
            continue
        config = parse(BridgeConfig, values, f"{page.stem}: {name}")
        for names, zone in ((config.maps.presets, config.maps.zone), (config.http.map_presets, "")):
            if names:
                assert compile_presets(names, zone=zone or "UTC", needs_names=True).filters


@pytest.mark.parametrize(
    ("topic", "device"),
    [
        ("house/z2m/Wohnzimmer Lampe", "living-room-lamp"),
        ("house/z2m/0x00158d0001a2b3c4", "cellar-water"),
        ("my/thermometer/a", "a"),
    ],
)
def test_a_file_with_presets_and_better_names(topic: str, device: str) -> None:
    maps = compile_maps(example("devices.md", "a file with presets", "toml"), needs_names=True)
    seen = preview(maps, topic, b'{"temperature": 21.5}', now_ms=NOW_MS)
    assert [(one.device, one.fields) for one in seen.stored] == [(device, {"temperature": 21.5})]
