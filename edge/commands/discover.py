"""`edgewake discover`: what speaks on a broker, and which presets and maps would read it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from edgewake.edge.client.send_cli import MQTT_VARIABLE

if TYPE_CHECKING:
    from edgewake.protocol.maps.discovering import Found, Survey

SHOWN = 3
"""Topics that are shown of each proposal."""
LEFT_SHOWN = 20
CHARS = 100


@click.command("discover")
@click.option(
    "--mqtt",
    metavar="HOST:PORT",
    envvar=MQTT_VARIABLE,
    help=f"MQTT broker; default: a running `edgewake up`'s. [env: {MQTT_VARIABLE}]",
)
@click.option("--username", help="User name at the broker.")
@click.option("--password-file", type=click.Path(path_type=Path), help="Its first line is taken.")
@click.option("--ca-file", type=click.Path(path_type=Path), help="PEM; turns TLS on.")
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 86_400),
    default=10.0,
    show_default=True,
    help="How long to listen. What is sent seldom needs longer.",
)
@click.option(
    "--write",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the maps that are proposed to this new file.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def discover(
    mqtt: str | None,
    username: str | None,
    password_file: Path | None,
    ca_file: Path | None,
    seconds: float,
    write: Path | None,
    as_json: bool,
) -> None:
    """List what speaks on a broker, and propose presets and maps. Nothing is kept."""
    import asyncio

    from edgewake.edge.client.send import Address
    from edgewake.edge.commands.map_watch import survey
    from edgewake.protocol import installation
    from edgewake.protocol.broker import BrokerConfig
    from edgewake.protocol.clock import SystemClock
    from edgewake.protocol.errors import ConfigError, RemoteError, Unavailable
    from edgewake.protocol.maps.discovering import proposed

    try:
        address = Address.parse(mqtt or installation.find().mqtt or "127.0.0.1:1883")
        broker = BrokerConfig(
            host=address.host, port=address.port, username=username,
            password_file=password_file, ca_file=ca_file,
        )  # fmt: skip
        if not as_json:
            click.echo(f"listening to {broker.host}:{broker.port} for {seconds:g} s", err=True)
        heard = asyncio.run(survey(broker, seconds=seconds))
        found = proposed(heard, now_ms=SystemClock().now_ms())
        if write is not None and found.text:
            with write.open("x", encoding="utf-8") as file:
                file.write(found.text)
    except ConfigError as error:
        _fail(str(error), 2)
    except FileExistsError:
        _fail(f"{write} exists already: choose another name, or move it away", 1)
    except (Unavailable, RemoteError, OSError) as error:
        _fail(str(error), 1)
    click.echo(_as_json(heard, found) if as_json else "\n".join(_lines(heard, found, write)))


def _lines(heard: Survey, found: Found, written: Path | None) -> list[str]:
    from edgewake.protocol.printable import printable

    lines = [f"{heard.messages} messages on {_topics(len(heard.topics))}"]
    if heard.unseen:
        lines.append(f"  {heard.unseen} more messages on topics that there was no room for")
    if found.own:
        shown = ", ".join(found.own[:LEFT_SHOWN])
        lines.append(f"Edgewake's own: {len(found.own)} devices: {shown}")
    if found.nodes:
        shown = printable(", ".join(found.nodes[:LEFT_SHOWN]))
        lines += [
            f"Sparkplug B: {len(found.nodes)} nodes: {shown}",
            "  read by an agent, edgewake-agent init --source sparkplug, or at the bridges by "
            "[sparkplug]: docs/devices/sparkplug.md",
        ]
    for one in found.proposals:
        kind = "map of its own" if one.table else "preset"
        lines.append(f"{kind} {printable(one.name)}: {_topics(len(one.topics))}")
        for topic in one.topics[:SHOWN]:
            sample = (heard.topics[topic] or [b"..."])[0].decode("utf-8", "replace")
            lines.append(f"  {printable(f'{topic} {sample}')[:CHARS]}")
    if found.left:
        lines.append(f"nothing found for {_topics(len(found.left))}, such as")
        lines += [f"  {printable(topic)[:CHARS]}" for topic in found.left[:LEFT_SHOWN]]
    if not heard.messages:
        lines.append("Nothing came. Do the devices publish to this broker? Try --seconds 120.")
    elif not found.text:
        lines.append("Nothing needs a map." if not found.left else "No map would read it.")
    elif written is not None:
        lines.append(f"{written} is written. See what it makes: edgewake map watch {written}")
    else:
        lines += ["", found.text, "Write it to a file by --write FILE."]
    return lines


def _topics(count: int) -> str:
    return "1 topic" if count == 1 else f"{count} topics"


def _as_json(heard: Survey, found: Found) -> str:
    import orjson

    return orjson.dumps(
        {
            "messages": heard.messages,
            "topics": len(heard.topics),
            "unseen": heard.unseen,
            "own": found.own,
            "nodes": found.nodes,
            "proposals": [
                {"name": one.name, "topics": one.topics, "is_preset": not one.table}
                for one in found.proposals
            ],
            "left": found.left,
            "text": found.text,
        }
    ).decode()


def _fail(text: str, code: int) -> NoReturn:
    click.echo(f"edgewake discover: {text}", err=True)
    sys.exit(code)
