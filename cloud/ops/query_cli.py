"""`edgewake query`: registered queries from a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

if TYPE_CHECKING:
    import httpx

OPS_URL: Final = "http://127.0.0.1:8702"
"""Where `edgewake up` serves the operations API without --port-base."""
REQUEST_TIMEOUT_S: Final = 15.0
WAIT_S: Final = 60
"""How long `add` waits for a query to run."""
LOOK_EVERY_S: Final = 0.3
COLUMNS: Final = ("name", "state", "stream", "lag", "detail")
WIDE_COLUMNS: Final = ("name", "state", "stream", "execution", "lag", "readings_per_s", "late", "watermark", "detail")


@dataclass(frozen=True)
class Ops:
    """Where the operations API is, and its key."""

    url: str
    key: str
    as_json: bool

    def ask(
        self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: object = None, about: str = ""
    ) -> httpx.Response:
        """Ask; a refusal ends the command with its reason, after `about`."""
        import httpx

        headers = {"Authorization": f"Bearer {self.key}"}
        try:
            response = httpx.request(
                method, self.url.rstrip("/") + path, params=params, json=body, headers=headers, timeout=REQUEST_TIMEOUT_S
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            _fail(f"the operations API at {self.url} does not answer: {error}. Is `edgewake up` running? Set --ops to its address.")
        if response.status_code == 401:
            _fail("the key is not accepted. `edgewake up` keeps one in data/secrets/ops.key; set EDGEWAKE_OPS_KEY, --key or --key-file.")
        if response.is_error:
            _fail("\n".join(about + line for line in _reason(response).splitlines()))
        return response


def _reason(response: httpx.Response) -> str:
    try:
        problem = response.json()
        return f"{problem['detail']} ({response.status_code} {problem['title']})"
    except (ValueError, KeyError, TypeError):
        return f"{response.request.url} answered {response.status_code}: {response.text[:200]}"


def _fail(text: str) -> NoReturn:
    raise click.ClickException(text)


@click.group()
@click.option("--ops", "url", envvar="EDGEWAKE_OPS_URL", help=f"Address of the operations API; default: a running one's, or {OPS_URL}.")
@click.option("--key", envvar="EDGEWAKE_OPS_KEY", help="A key of it. [env: EDGEWAKE_OPS_KEY]")
@click.option("--key-file", type=click.Path(path_type=Path, dir_okay=False), help="File of keys; default: a running `edgewake up`'s.")
@click.option("--json/--table", "as_json", default=None, help="Default: a table on a terminal, JSON when piped.")
@click.pass_context
def query(context: click.Context, url: str | None, key: str | None, key_file: Path | None, as_json: bool | None) -> None:
    """Add, look at and remove continuous queries."""
    context.obj = lambda: _ops(url, key, key_file, as_json)


def _ops(url: str | None, key: str | None, key_file: Path | None, as_json: bool | None) -> Ops:
    """Made when a command runs, so that its help needs no key."""
    import sys

    from edgewake.protocol import installation
    from edgewake.protocol.errors import ConfigError

    running = installation.find()
    file = key_file or (Path(running.ops_key_file) if running.ops_key_file else None)
    if not key and file is not None:
        key = installation.key_of(file)
    if not key:
        raise ConfigError("no key: set EDGEWAKE_OPS_KEY, --key or --key-file (`edgewake up` keeps one in data/secrets/ops.key)")
    if not key.isascii() or not key.isprintable():
        raise ConfigError("the key holds characters that no key has: expected ASCII")
    return Ops(url or running.ops or OPS_URL, key, not sys.stdout.isatty() if as_json is None else as_json)


def _name(_context: click.Context, _argument: click.Parameter, value: str) -> str:
    from edgewake.protocol.names import is_stream

    if not is_stream(value):
        raise click.BadParameter(f"{value!r} is not the name of a query: expected 1-64 of a-z 0-9 _, a letter first")
    return value


@query.command("list")
@click.pass_obj
@click.option("--wide", is_flag=True, help="All columns.")
def list_queries(make: Callable[[], Ops], wide: bool) -> None:
    """Show all queries."""
    ops = make()
    items: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        page = ops.ask("GET", "/v1/queries", params={"limit": 500} | ({"after": after} if after else {})).json()
        items += page["items"]
        after = page["next"]
        if after is None:
            return _show_many(items, WIDE_COLUMNS if wide else COLUMNS, as_json=ops.as_json)


@query.command()
@click.argument("name", callback=_name)
@click.pass_obj
def show(make: Callable[[], Ops], name: str) -> None:
    """Show one query and its text."""
    ops = make()
    _show_one(ops.ask("GET", f"/v1/queries/{name}").json(), as_json=ops.as_json)


@query.command()
@click.argument("name", callback=_name)
@click.pass_obj
def pause(make: Callable[[], Ops], name: str) -> None:
    """Stop computing a query; its rows of windows that are open now will say that they lack readings."""
    ops = make()
    _show_one(ops.ask("POST", f"/v1/queries/{name}/pause").json(), as_json=ops.as_json)


@query.command()
@click.argument("name", callback=_name)
@click.pass_obj
def resume(make: Callable[[], Ops], name: str) -> None:
    """Go on computing a query."""
    ops = make()
    _show_one(ops.ask("POST", f"/v1/queries/{name}/resume").json(), as_json=ops.as_json)


@query.command()
@click.argument("name", callback=_name)
@click.pass_obj
def remove(make: Callable[[], Ops], name: str) -> None:
    """Remove a query; its results stay until they are too old."""
    ops = make()
    ops.ask("DELETE", f"/v1/queries/{name}")
    click.echo(f"{name}: removed", err=True)


@query.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--wait", "wait_s", type=click.IntRange(0, 3600), default=WAIT_S, show_default=True, help="Seconds to wait until it runs.")
@click.pass_obj
def add(make: Callable[[], Ops], file: Path, wait_s: int) -> None:
    """Register the query in FILE and wait until it runs."""
    ops = make()
    response = ops.ask("POST", "/v1/queries", body={"text": _text_of(file)}, about=f"{file}: ")
    found = response.json()
    click.echo(f"{found['name']}: {'registered' if response.status_code == 201 else 'was registered already'}", err=True)
    found = _wait(ops, found, wait_s)
    if found["state"] != "running":
        _fail(f"{found['name']}: {found['state']}{': ' + found['detail'] if found['detail'] else ''}. {_advice(found)}")
    where = next(iter(found["events_urls"]), found["events_path"])
    click.echo(f"{found['name']}: running. Its results: curl -N '{where}'", err=True)
    _show_one({name: value for name, value in found.items() if name != "text"}, as_json=ops.as_json, only_json=True)


def _text_of(file: Path) -> str:
    try:
        text = file.read_text("utf-8")
    except UnicodeDecodeError:
        _fail(f"{file}: is not text")
    except OSError as error:
        _fail(f"{file}: {error.strerror}")
    if not text.strip():
        _fail(f"{file}: the file is empty")
    return text


def _wait(ops: Ops, found: dict[str, Any], wait_s: int) -> dict[str, Any]:
    import time

    from rich.console import Console

    deadline = time.monotonic() + wait_s
    with Console(stderr=True).status(f"{found['name']}: {found['state']} …") as status:
        while found["state"] == "starting" and time.monotonic() < deadline:
            time.sleep(LOOK_EVERY_S)
            found = ops.ask("GET", f"/v1/queries/{found['name']}").json()
            status.update(f"{found['name']}: {found['state']} …")
    return found


def _advice(found: Mapping[str, Any]) -> str:
    name = found["name"]
    if found["state"] == "starting":
        return f"Is the analysis running? `edgewake query show {name}` tells when it is; `edgewake query remove {name}` gives it up."
    if found["state"] == "paused":
        return f"`edgewake query resume {name}` lets it go on."
    return f"Mend the file, `edgewake query remove {name}`, and add it again."


def _show_many(items: list[dict[str, Any]], columns: Sequence[str], *, as_json: bool) -> None:
    import json

    if as_json:
        return click.echo(json.dumps(items, indent=1))
    from rich.console import Console
    from rich.table import Table

    table = Table()
    longest = max((len(str(item["name"])) for item in items), default=0)
    for name in columns:
        table.add_column(name, no_wrap=name in ("name", "state"), min_width=longest if name == "name" else None)
    for item in items:
        table.add_row(*(_cell(name, item.get(name)) for name in columns))
    return Console().print(table)


def _show_one(item: Mapping[str, Any], *, as_json: bool, only_json: bool = False) -> None:
    import json

    if as_json:
        return click.echo(json.dumps(item, indent=1))
    if only_json:
        return None
    from rich.console import Console
    from rich.syntax import Syntax
    from rich.table import Table

    console = Console()
    table = Table(show_header=False)
    for name, value in item.items():
        if name != "text":
            table.add_row(name, _cell(name, value))
    console.print(table)
    if item.get("text"):
        console.print(Syntax(item["text"], "sql"))
    return None


def _cell(name: str, value: object) -> str:
    from datetime import UTC, datetime

    if value is None:
        return ""
    if name in ("watermark", "registered_at", "updated_at") and isinstance(value, int):
        return datetime.fromtimestamp(value / 1000, UTC).isoformat(" ", "seconds")
    return f"{value:.1f}" if isinstance(value, float) else str(value)
