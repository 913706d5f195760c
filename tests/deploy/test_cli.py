"""The command `edgewake`."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import cast

import click
import pytest
from click.testing import CliRunner

from edgewake.deploy import cli
from tests.services import PATIENCE_S, free_ports

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`edgewake` as a user calls it."""
    return subprocess.run(
        [sys.executable, "-m", "edgewake.deploy.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def test_help_lists_every_command_of_the_project_in_a_sentence() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][
        "edgewake.commands"
    ]
    assert {*declared, *(entry.name for entry in cli.OWN)} == set(cli.HELP)
    shown = run("--help").stdout
    assert all(f"  {name} " in shown and text in shown for name, text in cli.HELP.items())


def loaded_by(*arguments: str) -> set[str]:
    """The modules that are loaded when a command has run; parts of ours as `edgewake.cloud`."""
    code = (
        f"import sys, edgewake.deploy.cli as c\nsys.argv = ['edgewake', *{arguments!r}]\ntry: "
        "c.main()\nexcept SystemExit: pass\n"
    )
    code += (
        "print({'.'.join(m.split('.')[: 1 + m.startswith('edgewake.')]) for m, module in "
        "sys.modules.items() if module})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return cast(set[str], ast.literal_eval(done.stdout.splitlines()[-1]))


def test_help_imports_no_part() -> None:
    loaded = loaded_by("--help")
    assert {"edgewake.deploy", "click"} <= loaded
    assert not loaded & {
        "edgewake.edge",
        "edgewake.cloud",
        "edgewake.simulators",
        "pydantic",
        "rich",
        "psutil",
    }


def test_a_command_of_the_operations_api_does_not_load_its_http_client_s_command_line() -> None:
    loaded = loaded_by(
        "query", "--ops", f"http://127.0.0.1:{free_ports(1)[0]}", "--key", "k", "list"
    )
    assert {"edgewake.cloud", "httpx"} <= loaded
    assert not loaded & {"rich", "pygments"}


def test_version() -> None:
    assert run("--version").stdout.startswith("edgewake, version ")


def test_an_unknown_command_is_refused() -> None:
    done = run("brigde")
    assert done.returncode == 2
    assert "No such command 'brigde'. Did you mean 'bridge'?" in done.stderr


@pytest.mark.parametrize(
    ("words", "meant"),
    [("statsu", "status"), ("qeury", "query"), ("devices lits", "list"), ("query psause", "pause")],
)
def test_a_slip_of_the_fingers_gets_a_suggestion_in_groups_too(words: str, meant: str) -> None:
    done = CliRunner().invoke(cli.edgewake, words.split())
    assert done.exit_code == 2
    assert f"'{meant}'" in done.output


def test_what_is_like_no_command_gets_no_suggestion() -> None:
    done = CliRunner().invoke(cli.edgewake, ["xyzzy"])
    assert "No such command 'xyzzy'." in done.output
    assert "Did you mean" not in done.output


def test_a_part_whose_libraries_are_missing_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needy_part.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        cli,
        "_entry_points",
        lambda: {"bridge": EntryPoint("bridge", "needy_part:bridge", cli.GROUP)},
    )
    done = CliRunner().invoke(cli.edgewake, ["bridge"])
    assert done.exit_code == 1
    assert (
        "edgewake bridge needs more libraries: pip install 'edgewake[needy_part]' (no module "
        "no_such_library)" in done.output
    )


@pytest.mark.parametrize(
    ("value", "extra"),
    [
        ("edgewake.cloud.ops.cli:ops", "cloud"),
        ("edgewake.cloud.commands.status:status", "client"),
        ("edgewake.edge.commands.cli:agent", "edge"),
        ("edgewake.edge.client.cli:tail", "client"),
    ],
)
def test_the_extra_to_install_follows_from_the_package(value: str, extra: str) -> None:
    entry = EntryPoint("x", value, cli.GROUP)
    assert f"'edgewake[{extra}]'" in cli.missing_library(entry, ModuleNotFoundError(name="psutil"))


@pytest.mark.parametrize(
    ("error", "code"), [("ConfigError", 2), ("LocalError", 1), ("Unavailable", 1)]
)
def test_an_error_of_ours_is_one_sentence_and_a_code(error: str, code: int) -> None:
    program = (
        "import sys, click, edgewake.deploy.cli as c, edgewake.protocol.errors as e\n"
        f"def fail(): raise e.{error}('x.toml: port = 5: too low')\n"
        "c.Parts.get_command = lambda self, ctx, name: click.Command('bridge', callback=fail)\n"
        "sys.argv = ['edgewake', 'bridge']\nc.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr, done.stdout) == (
        code,
        "edgewake: x.toml: port = 5: too low\n",
        "",
    )


def test_every_command_says_what_it_does() -> None:
    context = click.Context(cli.edgewake)
    for name in cli.edgewake.list_commands(context):
        command = cli.edgewake.get_command(context, name)
        assert command is not None
        assert command.help, name


def _installed_without(
    absent: set[str], folder: Path
) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """`edgewake` where some libraries are missing: links to the others, and Python without its
    site-packages.
    """
    for entry in Path(click.__file__).parents[1].iterdir():
        if entry.name.partition("-")[0] not in absent and not entry.name.endswith(".pth"):
            (folder / entry.name).symlink_to(entry)
    environment = {"PYTHONPATH": f"{folder}:{ROOT}", "PATH": os.environ["PATH"]}
    command = [sys.executable, "-S", "-m", "edgewake.deploy.cli"]
    return lambda arguments: subprocess.run(
        [*command, *arguments.split()],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=environment,
    )


def _listed(shown: subprocess.CompletedProcess[str]) -> set[str]:
    commands = shown.stdout.partition("Commands:")[2].splitlines()
    return {line.split()[0] for line in commands if line.startswith("  ")}


CLOUD_LIBRARIES = {"confluent_kafka", "fastapi", "pyspark", "starlette", "uvicorn", "duckdb"}


def test_who_installs_the_client_is_offered_what_an_operator_types(tmp_path: Path) -> None:
    run_here = _installed_without(CLOUD_LIBRARIES, tmp_path)
    operators = {
        "status",
        "alert",
        "query",
        "devices",
        "dead-letters",
        "ack",
        "sql",
        "summary",
        "requests",
        "reply",
        "command",
        "config",
    }
    assert operators <= _listed(run_here("--help"))
    (tmp_path / "key").write_text("k" * 40)
    asked = run_here(f"status --ops http://127.0.0.1:9 --key-file {tmp_path / 'key'}")
    assert (asked.returncode, "127.0.0.1:9" in asked.stderr) == (1, True), asked.stderr
    for command in sorted(operators):
        assert run_here(f"{command} --help").returncode == 0, command


def test_help_lists_what_is_installed_and_names_the_rest(tmp_path: Path) -> None:
    run_here = _installed_without({*CLOUD_LIBRARIES, "httpx", "rich", "aiomqtt"}, tmp_path)
    shown = run_here("--help")
    listed = _listed(shown)
    assert {"agent", "login"} <= listed, shown.stdout + shown.stderr
    assert {"up", "tail", "query", "bridge", "analysis", "access", "replay"} & listed == set()
    assert "edgewake[cloud]" in shown.stdout
    called = run_here("tail s")
    assert (called.returncode, "pip install 'edgewake[client]'" in called.stderr) == (1, True), (
        called.stderr
    )


def test_the_examples_of_replay_stand_in_lines_of_their_own() -> None:
    shown = run("replay", "--help").stdout
    assert "\\b" not in shown
    assert (
        len([line for line in shown.splitlines() if line.strip().startswith("edgewake replay ")])
        == 3
    )


def test_the_agent_s_commands_take_the_configuration_of_the_group_and_name_a_wrong_source(
    tmp_path: Path,
) -> None:
    config = tmp_path / "agent.toml"
    config.write_text(
        f'device = "shed"\ndata_dir = "{tmp_path}"\n[[source]]\ntype = "nope"\nstream = "s"\n'
    )
    done = run("agent", "--config", str(config), "check")
    assert done.returncode == 2
    assert "source 1: no kind of source is called 'nope': known are " in done.stderr, done.stderr
    config.write_text('device = "a b"\n' + f'data_dir = "{tmp_path}"\n')
    assert "Value error" not in run("agent", "--config", str(config), "check").stderr
