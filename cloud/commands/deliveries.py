"""Webhook deliveries in a terminal: `edgewake delivery`."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from edgewake.cloud.commands.common.api_client import fail
from edgewake.cloud.commands.common.output import print_item, print_items, print_json, tell
from edgewake.cloud.commands.common.tables_file import tables_of
from edgewake.protocol.leases.delivery import NAME_PATTERN

if TYPE_CHECKING:
    import httpx

PUSH_URL: Final = "http://127.0.0.1:8703"
"""Where `edgewake up` serves the push proxy without --port-base."""
REQUEST_S: Final = 30.0
"""A call that is under way is waited for."""
COLUMNS: Final = (
    "name", "state", "streams", "endpoint_host", "events", "failures", "letters", "error",
)  # fmt: skip
LETTER_COLUMNS: Final = ("number", "made_at", "tries", "error", "event")


@dataclass(frozen=True, slots=True)
class PushApi:
    """Where the push proxy is, and by what its deliveries are reached."""

    url: str
    token: str
    as_json: bool

    def ask(self, method: str, path: str = "", body: object = None, *, about: str = "") -> Any:
        """The answer; a refusal ends the command with its reason, after `about`."""
        import httpx

        url = f"{self.url.rstrip('/')}/v1/deliveries{path}"
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            answer = httpx.request(method, url, json=body, headers=headers, timeout=REQUEST_S)
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            fail(
                f"the push proxy at {self.url} does not answer: {error}. Is `edgewake up` running? "
                "Set --push to its address."
            )
        if answer.is_error:
            fail(about + _reason(answer))
        if not answer.content:
            return None
        try:
            return answer.json()
        except ValueError:
            fail(f"{url} answers otherwise than a push proxy. Set --push to its address.")


def _reason(answer: httpx.Response) -> str:
    try:
        problem = answer.json()
        where = [f"{one['where']}: {one['expected']}" for one in problem.get("errors", ())]
        return "; ".join([f"{problem['detail']} ({answer.status_code})", *where])
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{answer.request.url} answered {answer.status_code}: {answer.text[:200]}"


_AS_NAME: Final = "expected 1-64 of A-Z a-z 0-9 . _ -, a letter or digit first"


def _delivery_name(_context: click.Context, _argument: click.Parameter, value: str) -> str:
    if not re.fullmatch(NAME_PATTERN, value):
        raise click.BadParameter(f"{value!r}: {_AS_NAME}")
    return value


_name = click.argument("name", callback=_delivery_name)
_number = click.argument("number", type=click.IntRange(1))


@click.group()
@click.option("--json/--table", "as_json", default=None, help="Default: a table on a terminal.")
@click.option(
    "--push", "url", envvar="EDGEWAKE_PUSH_URL", default=PUSH_URL, show_default=True,
    help="Address of the push proxy. [env: EDGEWAKE_PUSH_URL]",
)  # fmt: skip
@click.option(
    "--token-file", type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A file with your key or token. Or in EDGEWAKE_TOKEN.",
)  # fmt: skip
@click.pass_context
def delivery(
    context: click.Context, as_json: bool | None, url: str, token_file: Path | None
) -> None:
    """Have every event of a stream sent to a webhook."""
    token = os.environ.get("EDGEWAKE_TOKEN", "")
    if token_file is not None:
        token = token_file.read_text("utf-8", "replace").strip()
    as_json = not sys.stdout.isatty() if as_json is None else as_json
    context.obj = PushApi(url, token, as_json)


@delivery.command("list")
@click.pass_obj
def list_deliveries(api: PushApi) -> None:
    """Show yours."""
    print_items(api.ask("GET")["deliveries"], COLUMNS, as_json=api.as_json)


@delivery.command("show")
@_name
@click.pass_obj
def show(api: PushApi, name: str) -> None:
    """Show one: where it stands, and what fails."""
    print_item(api.ask("GET", f"/{name}"), as_json=api.as_json)


@delivery.command("apply")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.pass_obj
def apply(api: PushApi, file: Path) -> None:
    """Replace deliveries with those of the same names in FILE.

    FILE is TOML with a table [NAME] for each, or JSON. A delivery that exists continues from its
    cursor.
    """
    tables = tables_of(
        file, "delivery", "with streams and url in it", re.compile(NAME_PATTERN), _AS_NAME
    )
    for name, body in tables.items():
        made = api.ask("PUT", f"/{name}", body, about=f"{file}: {name}: ")
        tell(f"{name}: {made['state']}, to {made['endpoint_host']}", err=True)
        if made["secret"]:
            tell(f"its secret, shown this once: {made['secret']}")


@delivery.command("test")
@_name
@click.pass_obj
def test(api: PushApi, name: str) -> None:
    """Call its endpoint now, without an event. Exit code 1: it did not take it."""
    _tell_call(name, api.ask("POST", f"/{name}/test"))


@delivery.command("enable")
@_name
@click.pass_obj
def enable(api: PushApi, name: str) -> None:
    """Try it again now; one that ended goes on where it stands."""
    api.ask("POST", f"/{name}/enable")
    tell(f"{name}: active", err=True)


@delivery.command("secret")
@_name
@click.option("--keep-old-s", default=86_400, show_default=True, help="Sign with both so long.")
@click.pass_obj
def secret(api: PushApi, name: str, keep_old_s: int) -> None:
    """Make another secret, and show it; for a while both sign."""
    made = api.ask("POST", f"/{name}/secret", {"keep_old_s": keep_old_s})
    tell(f"its secret, shown this once: {made['secret']}")


@delivery.command("letters")
@_name
@click.pass_obj
def letters(api: PushApi, name: str) -> None:
    """Show its dead letters: events that the endpoint refused."""
    found = api.ask("GET", f"/{name}/letters")["letters"]
    if api.as_json:
        return print_json(found)
    shown = [one | {"event": json.dumps(one["event"])} for one in found]
    return print_items(shown, LETTER_COLUMNS, as_json=False)


@delivery.command("replay")
@_name
@_number
@click.pass_obj
def replay(api: PushApi, name: str, number: int) -> None:
    """Send a dead letter once more. Exit code 1: it was not taken."""
    _tell_call(f"{name} {number}", api.ask("POST", f"/{name}/letters/{number}/replay"))


@delivery.command("drop")
@_name
@_number
@click.pass_obj
def drop(api: PushApi, name: str, number: int) -> None:
    """Forget a dead letter."""
    api.ask("DELETE", f"/{name}/letters/{number}")
    tell(f"{name} {number}: removed", err=True)


@delivery.command("delete")
@_name
@click.pass_obj
def delete(api: PushApi, name: str) -> None:
    """End a delivery, and forget its letters."""
    api.ask("DELETE", f"/{name}")
    tell(f"{name}: removed", err=True)


def _tell_call(what: str, call: dict[str, Any]) -> None:
    if not call["taken"]:
        fail(f"{what}: not taken: {call['error']}")
    tell(f"{what}: taken", err=True)
