"""What the agent's commands have in common: their configuration, and how an error ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from edgewake.edge.commands.cli import agent
from edgewake.edge.commands.config_file import exits
from edgewake.protocol.errors import ConfigError, LocalError, Rejected, RejectReason, Unavailable
from tests.edge.helpers import opened


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """An agent's, whose folder has a letter that not every terminal has."""
    path = tmp_path / "agent.toml"
    source = '[[source]]\ntype = "host_metrics"\nstream = "host"\n'
    path.write_text(
        f'device = "d1"\ndata_dir = "{tmp_path}/d\N{LATIN SMALL LETTER E WITH ACUTE}"\n{source}',
        "utf-8",
    )
    with opened(tmp_path / "dé"):
        pass  # an agent has run
    return path


@pytest.mark.parametrize(
    ("charset", "shown"),
    [
        ("utf-8", "host_metrics → host (ack)"),
        ("latin-1", "host_metrics \\u2192 host (ack)"),
        ("cp1251", "/d\\xe9, sources: host_metrics \\u2192"),
    ],
)
def test_what_a_terminal_has_no_character_for_is_said_by_its_number(
    config: Path, charset: str, shown: str
) -> None:
    done = CliRunner(charset=charset).invoke(agent, ["check", "--config", str(config)])
    assert (done.exit_code, done.exception) == (0, None)
    assert shown in done.output


@pytest.mark.parametrize(
    "place",
    [
        ["--config", "FILE", "status"],
        ["status", "--config", "FILE"],
        ["--config", "/nothing", "status", "--config", "FILE"],
    ],
)
def test_the_configuration_may_stand_before_or_after_the_command_and_the_last_one_counts(
    config: Path, place: list[str]
) -> None:
    assert (
        CliRunner()
        .invoke(agent, [str(config) if word == "FILE" else word for word in place])
        .exit_code
        == 0
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("a"), 2),
        (LocalError("a"), 1),
        (Unavailable("a"), 1),
        (Rejected(RejectReason.JSON, "a"), 1),
        (OSError("a"), 1),
        (PermissionError(13, "a"), 1),
    ],
    ids=lambda found: str(found) if isinstance(found, int) else type(found).__name__,
)
def test_an_error_of_ours_is_one_sentence_and_an_exit_code(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    @exits
    def fails() -> None:
        raise error

    with pytest.raises(SystemExit) as ended:
        fails()
    assert ended.value.code == code
    assert capsys.readouterr().err == f"edgewake agent: {error}\n"


@pytest.mark.parametrize("error", [ZeroDivisionError(), KeyError("a"), KeyboardInterrupt()])
def test_a_bug_is_not_hidden(error: BaseException) -> None:
    @exits
    def fails() -> None:
        raise error

    with pytest.raises(type(error)):
        fails()
