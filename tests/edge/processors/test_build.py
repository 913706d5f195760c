"""What docs/processing.md shows is what happens."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import orjson
import pytest

from edgewake.edge.config import AgentConfig
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.build import build

PAGE = (Path(__file__).parents[3] / "docs/processing.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def readings(block: str) -> list[Reading]:
    rows = [orjson.loads(line) for line in block.splitlines()]
    return [(row.pop("t"), row) for row in rows]


def test_the_first_example_makes_what_it_shows():
    flowing, *shown = map(readings, blocks("json"))
    chains = [build(one) for one in AgentConfig.checked(tomllib.loads(blocks("toml")[0])).chain]
    made = []
    for chain in chains:
        flowing = [
            (t, {name: round(v, 9) if isinstance(v, float) else v for name, v in fields.items()})
            for t, fields in chain.apply(chain.begin(), flowing).readings
        ]
        made.append(flowing)
    assert made == shown


@pytest.mark.parametrize("text", blocks("toml"), ids=range(len(blocks("toml"))))
def test_each_example_is_a_configuration(text: str):
    assert AgentConfig.checked(tomllib.loads(text)).device == "truck-12"
