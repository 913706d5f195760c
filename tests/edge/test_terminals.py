"""The commands on terminals, pipes and files of every kind: what can be shown is shown, and no
traceback is.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgewake.edge.commands.cli import agent
from tests.edge.helpers import opened, put


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Of an agent whose log holds many readings."""
    path = tmp_path / "agent.toml"
    source = '[[source]]\ntype = "host_metrics"\nstream = "host"\n'
    path.write_text(
        f'device = "d1"\ndata_dir = "{tmp_path}/d\N{LATIN SMALL LETTER E WITH ACUTE}"\n{source}',
        "utf-8",
    )
    with opened(tmp_path / "dé") as events:
        put(events, range(3_000))
    return path


@contextmanager
def closed_pipe() -> Iterator[None]:
    """Standard output that nobody reads any more, as behind `| head`."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb", buffering=0) as raw, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="utf-8", write_through=True))
        yield


@pytest.mark.parametrize(
    "words", ["log export", "log show --limit 10000", "log stats", "status", "check"]
)
def test_who_has_read_enough_is_told_nothing_more(
    config: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    with closed_pipe(), pytest.raises(SystemExit) as ended:
        agent.main([*words.split(), "--config", str(config)], prog_name="edgewake-agent")
    assert (ended.value.code, capsys.readouterr()) == (1, ("", ""))


@pytest.mark.parametrize("words", ["log export", "status"])
def test_a_full_disk_behind_the_output_is_said(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(full, write_through=True))
        with pytest.raises(SystemExit) as ended:
            agent.main([*words.split(), "--config", str(config)], prog_name="edgewake-agent")
        monkeypatch.undo()
    assert ended.value.code == 1
    assert "No space left on device" in capsys.readouterr().err


def test_one_object_a_line_for_programs_and_a_table_for_people(config: Path) -> None:
    asked = CliRunner().invoke(agent, ["status", "--json", "--config", str(config)])
    found = json.loads(asked.output)
    assert (
        found["running"],
        found["log"]["backlog_readings"],
        found["log"]["streams"]["speed"]["waiting"],
    ) == (False, 3_000, 3_000)
    rows = CliRunner().invoke(agent, ["status", "--config", str(config)]).output.splitlines()
    assert rows[0].split() == ["agent", "not", "running"]
    assert len({row.index(row.split("  ")[-1].strip()) for row in rows if "  " in row}) == 1, (
        "the second column is one"
    )
    for words in ("log export", "log stats", "log show"):
        lines = (
            CliRunner().invoke(agent, [*words.split(), "--config", str(config)]).output.splitlines()
        )
        assert lines
        assert all(isinstance(json.loads(line), dict) for line in lines)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("status", "--config FILE is missing"),
        ("log verify", "--config FILE is missing"),
        ("requests", "--config FILE is missing"),
        ("doctor", "--config FILE is missing"),
        ("check --config /", "is a directory"),
        ("log show --limit 0", "0 is not in the range"),
        ("log show --limit 10001", "10001 is not in the range"),
        ("page --port 0", "0 is not in the range"),
        ("page --port 65536", "65536 is not in the range"),
        ("requests a --wait -1", "-1.0 is not in the range"),
        ("nonsense", "No such command"),
        ("status --josn", "No such option"),
    ],
)
def test_a_command_that_is_wrong_ends_with_exit_code_2_and_a_word_about_it(
    words: str, says: str
) -> None:
    done = CliRunner().invoke(agent, words.split())
    assert done.exit_code == 2
    assert isinstance(done.exception, SystemExit)
    assert says in done.output
