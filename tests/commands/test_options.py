"""Options of a group stand before or behind its commands; the later ones count.

Names are completed from what answers there.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from edgewake.cloud.commands.common.api_client import Given
from edgewake.deploy.cli import edgewake
from tests.services import free_ports

ITEMS = {
    "/v1/devices": [
        {"device": "car-01", "state": "online"},
        {"device": "car-02", "state": "silent"},
        {"device": "bus-1"},
    ],
    "/v1/streams": [{"name": "speed"}, {"name": "spin"}, {"name": "temperature"}],
    "/v1/queries": [{"name": "fast"}],
}


class Api(ThreadingHTTPServer):
    """Lists what it is asked for, to who has its key."""

    daemon_threads = True
    key = "k1"


class Handler(BaseHTTPRequestHandler):
    """See Api."""

    server: Api

    def do_GET(self) -> None:
        is_known = self.headers["Authorization"] == f"Bearer {self.server.key}"
        items = ITEMS[self.path.partition("?")[0]]
        problem = {"detail": "no key", "title": "unauthorized"}
        body = json.dumps(
            {"items": items, "next": None, "total": len(items)} if is_known else problem
        ).encode()
        self.send_response(200 if is_known else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def api() -> Iterator[str]:
    with Api(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def called(*words: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    """A command: its exit code, and what it says."""
    done = CliRunner().invoke(edgewake, words, env=env)
    return done.exit_code, done.output


def nowhere() -> str:
    """An address where nobody answers."""
    return f"http://127.0.0.1:{free_ports(1)[0]}"


@pytest.mark.parametrize(
    "command",
    [
        "devices list",
        *(pytest.param(one, marks=pytest.mark.long) for one in ("streams list", "query list")),
    ],
)
def test_options_of_a_group_stand_before_or_behind_its_command(api: str, command: str) -> None:
    group, sub = command.split()
    before = called(group, "--ops", api, "--key", "k1", "--json", sub)
    behind = called(group, sub, "--ops", api, "--key", "k1", "--json")
    assert before == behind
    assert before[0] == 0, before


def test_what_stands_behind_counts_more_than_what_stands_before_and_that_more_than_the_environment(
    api: str,
) -> None:
    wrong = {"EDGEWAKE_OPS_URL": nowhere(), "EDGEWAKE_OPS_KEY": "no"}
    assert called("devices", "--ops", api, "--key", "k1", "list", env=wrong)[0] == 0
    assert (
        called("devices", "--ops", nowhere(), "--key", "no", "list", "--ops", api, "--key", "k1")[0]
        == 0
    )
    assert called("devices", "--ops", api, "--key", "k1", "list", "--key", "no")[0] == 1
    assert (
        called("devices", "list", env={"EDGEWAKE_OPS_URL": api, "EDGEWAKE_OPS_KEY": "k1"})[0] == 0
    )


def test_a_file_of_keys_behind_takes_the_place_of_a_key_before(api: str, tmp_path: Path) -> None:
    file = tmp_path / "ops.key"
    file.write_text("k1\n")
    file.chmod(0o600)
    code, said = called(
        "devices", "list", "--ops", api, "--key-file", str(file), env={"EDGEWAKE_OPS_KEY": "no"}
    )
    assert code == 0, said
    before = Given(url="a", key="k", as_json=True)
    assert before.unless(Given(key_file=file)) == Given(url="a", key_file=file, as_json=True)
    assert before.unless(Given()) == before


def completed(*words: str) -> list[str]:
    """What the shell would show for the last word."""
    *before, last = words
    shell = BashComplete(edgewake, {}, "edgewake", "_EDGEWAKE_COMPLETE")
    return [item.value for item in shell.get_completions(list(before), last)]


def test_names_of_devices_streams_and_queries_are_completed(api: str) -> None:
    where = ("--ops", api, "--key", "k1")
    assert completed("devices", *where, "show", "car") == ["car-01", "car-02"]
    assert completed("devices", "show", *where, "b") == ["bus-1"]
    assert completed("streams", *where, "show", "sp") == ["speed", "spin"]
    assert completed("query", *where, "pause", "") == ["fast"]
    assert completed("command", *where, "car-02") == ["car-02"]


@pytest.mark.parametrize(
    "wrong",
    ["nobody there", "another program", pytest.param("another key", marks=pytest.mark.long)],
)
def test_a_completion_has_no_errors(api: str, wrong: str) -> None:
    url = nowhere() if wrong == "nobody there" else api
    if wrong == "another program":
        url = api + "/v1/devices?"
    assert completed("devices", "--ops", url, "--key", "no", "show", "c") == []


def test_every_argument_that_is_a_name_is_completed() -> None:
    """A new command that names a device, a stream or a query completes it, too."""
    plain = []
    context = click.Context(edgewake)
    for name in edgewake.list_commands(context):
        command = edgewake.get_command(context, name)
        assert command is not None
        below = list(command.commands.values()) if isinstance(command, click.Group) else [command]
        for one in below:
            for parameter in one.params:
                is_name = isinstance(parameter, click.Argument) and parameter.name in (
                    "device",
                    "stream",
                    "streams",
                    "names",
                )
                is_query = (
                    isinstance(parameter, click.Argument)
                    and parameter.name == "name"
                    and name == "query"
                )
                if (is_name or is_query) and parameter._custom_shell_complete is None:
                    plain.append(f"{name} {one.name} {parameter.name}")
    assert plain == ["devices add names", "send send device"], "these may be new ones"
