"""Whether a value occurred, through the whole system: lines that an agent tails, its own sketches
beside them, minutes of Spark, and `edgewake summary --contains` in the terminal.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from edgewake.cloud.ops.routes.summaries import ASKED_MAX
from tests.story.system import OPS_KEY, System

STREAM = "lines"
DIFFERENT = 1_348
"""As the finding had it: the Count-Min of a device said yes of 97.7 % of all others."""
ABSENT = [f"never-{i}" for i in range(50)]
PER_READING = 10
"""Lines of the same event time."""
SETTLED_S = 180.0
"""Spark's first batch of summaries, on a busy machine."""


def asked(system: System, key: Path, *more: str) -> Any:
    """The only row."""
    command = [sys.executable, "-m", "edgewake.deploy.cli", "summary", STREAM, "customer"]
    named = ["--ops", system.ops_url, "--key-file", str(key), "--from", "30m", "--json", *more]
    done = subprocess.run([*command, *named], capture_output=True, text=True, timeout=60)
    if done.returncode:
        return None
    rows = json.loads(done.stdout)["rows"]
    return rows[0] if rows else None


def answered(
    system: System, key: Path, devices: Sequence[str], what: str, texts: Sequence[str]
) -> list[Any]:
    """What is said of each text, as many in a question as one may have."""
    option = {"contains": "--contains", "occurrences": "--count-of"}[what]
    found: list[Any] = []
    for at in range(0, len(texts), ASKED_MAX):
        options = [part for text in texts[at : at + ASKED_MAX] for part in (option, text)]
        found += asked(system, key, *devices, *options)[what]
    return found


@pytest.mark.long
async def test_a_value_that_was_never_sent_is_no_among_1348_that_were(tmp_path: Path) -> None:
    key = tmp_path / "client.key"
    key.write_text(OPS_KEY)
    config = "summary_interval_s = 5\n"
    sketches = (
        f'[[sketch]]\nstream = "{STREAM}"\nfields = ["customer"]\nbeside = true\n'
        'kinds = ["count_min", "bloom"]\nwindow_s = 60\n'
    )
    async with System(
        tmp_path, agents=["agent-a"], stream=STREAM, bridges=1, servers=1, analysis=config
    ) as system:
        with (tmp_path / "agent-a.toml").open("a") as file:
            file.write(sketches)
        now_ms = time.time_ns() // 1_000_000
        minute_ms = now_ms - now_ms % 60_000 - 600_000
        values = [f"customer-{i}" for i in range(DIFFERENT)]
        times = [minute_ms + i * 59_000 // DIFFERENT for i in range(DIFFERENT)]
        lines = [
            json.dumps({"t": t, "customer": value}) for t, value in zip(times, values, strict=True)
        ]
        # What comes minutes later says that the device's window is over.
        lines.append(json.dumps({"t": minute_ms + 180_000, "customer": values[0]}))
        await system.start("bridge-1", "sequencer", "ops", "analysis", "agent-a")
        with system.input_file("agent-a").open("a") as file:
            file.write("".join(line + "\n" for line in lines))

        def read(*more: str) -> int:
            row = asked(system, key, *more)
            return 0 if row is None else int(row["figures"]["readings"])

        own = ("--devices", "@agent-a")
        await system.until(
            lambda: read() == len(lines), "all is summed up", timeout_s=SETTLED_S, every_s=1
        )
        await system.until(
            lambda: read(*own) == DIFFERENT, "the device's sketches are there", every_s=1
        )
        sought = [*values[:: DIFFERENT // 50], *ABSENT]
        for devices in ((), own):
            found = answered(system, key, devices, "contains", sought)
            said = {one["text"]: one["value"] for one in found}
            assert [text for text in sought if said[text] is not (text not in ABSENT)] == []
            assert all(one["false_positive"] < 0.001 for one in found)
        by_table = answered(system, key, own, "occurrences", ABSENT)
        assert sum(one["value"] > 0 for one in by_table) > 40, "the Count-Min would have said yes"
        shown = subprocess.run(
            [sys.executable, "-m", "edgewake.deploy.cli", "summary", STREAM, "customer", "--table",
             "--ops", system.ops_url, "--key-file", str(key), "--from", "30m",
             "--contains", "never-1", "--contains", values[7]],
            capture_output=True, text=True, timeout=60, check=True,
        ).stdout  # fmt: skip
        cells = [line.replace("│", " ").split() for line in shown.splitlines()]
        assert ["contains", "never-1", "no"] in cells, shown
        assert any(cell[:3] == ["contains", values[7], "yes"] for cell in cells), shown
