"""docs/filters.md: its files are applied, and its commands run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.access.wanted.conftest import Keeper
from tests.access.wanted.reading import places
from tests.access.world import Server
from tests.feeds import Feed, eventually, unique
from tests.house.source import ROOT
from tests.ops.service import KEY
from tests.services import PATIENCE_S

pytestmark = pytest.mark.services
PAGE = (ROOT / "docs" / "filters.md").read_text()
BLOCKS = dict(re.findall(r"```(?:sh|toml)\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))


def shell(keeper: Keeper, folder: Path, text: str, server: Server, stream: str) -> str:
    """Run a script of the page as a user would, beside the page's files."""
    command = f'edgewake() {{ "{sys.executable}" -m edgewake.deploy.cli "$@"; }}\n{text}'
    environment = {
        "PATH": os.environ["PATH"],
        "COLUMNS": "200",
        "EDGEWAKE_OPS_URL": keeper.ops.url,
        "EDGEWAKE_OPS_KEY": KEY,
        "ACCESS": server.url,
        "STREAM": stream,
    }
    done = subprocess.run(
        ["bash", "-euc", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_what_the_page_shows_works(
    keeper: Keeper, access_a: Server, new_feed: Callable[..., Feed], tmp_path: Path
) -> None:
    """With the page's names replaced by those of this test alone."""
    feed = new_feed(partitions=1)
    north, harbour = unique("north"), unique("harbour")
    fields: dict[str, list[Any]] = {
        "n": [1.0, 2.0],
        "lat": [1.0, 1.0],
        "lon": [2.0, 2.0],
        "speed_kmh": [50.0, 130.0],
    }
    for device in ("car-1", "car-2", "car-3"):
        feed.send(device, 2, fields=fields)
    for name, text in BLOCKS.items():
        own = text.replace("vehicle_position", feed.name)
        own = re.sub(r"\bnorth\b", north, re.sub(r"\bharbour\b(?!')", harbour, own))
        (tmp_path / name).write_text(own)
        if name.endswith(".toml"):
            assert tomllib.loads(own)

    def run(name: str) -> str:
        return shell(keeper, tmp_path, (tmp_path / name).read_text(), access_a, feed.name)

    assert places(json.loads(run("devices.sh"))["events"]) == [("car-1", 2), ("car-3", 2)]
    assert north in run("sets.sh")
    shell(keeper, tmp_path, "edgewake publication apply publications.toml", access_a, feed.name)
    curl = f'curl -s "$ACCESS/v1/publications/{harbour}/events?limit=1"'
    await eventually(
        lambda: "cursor" in shell(keeper, tmp_path, curl, access_a, feed.name), "known"
    )
    shown = json.loads(run("publications.sh").splitlines()[-1])["events"]
    assert sorted(row["device"] for row in shown) == ["car-1", "car-2", "car-3"]
    assert {(row["speed_kmh"], "n" in row) for row in shown} == {(50.0, False)}
    latest = json.loads(run("latest.sh"))
    assert [row["n"] for row in latest["events"]] == [2, 2, 2]
    assert latest["superseded"] == 3
