"""`edgewake map`: look at a map file, and at what it makes of messages, before anything is kept."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from edgewake.edge.client.send_cli import MQTT_VARIABLE

if TYPE_CHECKING:
    from edgewake.protocol.maps.rule import Maps

FILE_HELP = "FILE is a map file, or the name of a preset (`edgewake map presets`)."


@click.group("map")
def map_group() -> None:
    """Try maps: what becomes of the messages of devices that speak in their own words."""


@map_group.command("presets")
def presets_command() -> None:
    """List the maps that come with Edgewake."""
    from edgewake.protocol.maps import presets

    for name in presets.names():
        click.echo(f"{name:<20} {presets.about(name)}".rstrip())


@map_group.command("check", epilog=FILE_HELP)
@click.argument("file")
@click.option("--zone", default="UTC", show_default=True, help="Zone of times that have none.")
def check_command(file: str, zone: str) -> None:
    """Check FILE; print its topics, and the rules that a broker with an access list needs."""
    maps = _maps(file, zone)
    click.echo(f"{file}: good; version {maps.version}, {len(maps.maps)} maps")
    width = max(len(each.name) for each in maps.maps)
    for each in maps.maps:
        click.echo(f"  {each.name:<{width}} {each.topic.filter}")
    click.echo("For an access list of Mosquitto (bridges read; give each device its own topics):")
    for pattern in maps.filters:
        click.echo(f"  pattern read {pattern}")


@map_group.command("try", epilog=FILE_HELP)
@click.argument("file")
@click.argument("payload", required=False, default="-")
@click.option("--topic", help="The message's topic; default: one that the first map takes.")
@click.option("--zone", default="UTC", show_default=True, help="Zone of times that have none.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def try_command(file: str, payload: str, topic: str | None, zone: str, as_json: bool) -> None:
    """Show what FILE makes of PAYLOAD (-: standard input).

    Exit code 1: something is refused. 2: the file is wrong.
    """
    import orjson

    from edgewake.protocol.clock import SystemClock
    from edgewake.protocol.maps import preview

    maps = _maps(file, zone)
    data = sys.stdin.buffer.read() if payload == "-" else payload.encode("utf-8", "surrogateescape")
    if payload != "-" and "\n" not in payload:
        data = data.strip()
    if topic is None:
        topic = _topic_of(maps)
        if not as_json:
            click.echo(f"no --topic: taken for {topic}")
    now_ms = SystemClock().now_ms()
    seen = preview.preview(maps, topic, data, now_ms=now_ms)
    if as_json:
        click.echo(orjson.dumps(preview.as_object(topic, seen)).decode())
    else:
        click.echo("\n".join(preview.lines(maps, topic, seen, now_ms)))
    if seen.refused:
        sys.exit(1)


def _topic_of(maps: Maps) -> str:
    from edgewake.protocol.maps.preview import sample_topic

    topics = [sample_topic(one) for one in maps.maps if not one.is_ignored]
    if len(set(topics)) != 1:
        listed = "\n  ".join(dict.fromkeys(topics))
        _fail(f"--topic is missing: the file has several, such as\n  {listed}", 2)
    return topics[0]


@map_group.command("watch", epilog=FILE_HELP)
@click.argument("file")
@click.option(
    "--mqtt",
    metavar="HOST:PORT",
    envvar=MQTT_VARIABLE,
    help=f"MQTT broker; default: a running `edgewake up`'s. [env: {MQTT_VARIABLE}]",
)
@click.option("--username", help="User name at the broker.")
@click.option("--password-file", type=click.Path(path_type=Path), help="Its first line is taken.")
@click.option("--ca-file", type=click.Path(path_type=Path), help="PEM; turns TLS on.")
@click.option("--count", type=click.IntRange(1), help="End after this many messages.")
@click.option("--zone", default="UTC", show_default=True, help="Zone of times that have none.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a message.")
def watch_command(
    file: str,
    mqtt: str | None,
    username: str | None,
    password_file: Path | None,
    ca_file: Path | None,
    count: int | None,
    zone: str,
    as_json: bool,
) -> None:
    """Show what FILE makes of the messages on a broker, as they come. Nothing is kept."""
    import asyncio
    import contextlib

    from edgewake.edge.client.send import Address
    from edgewake.edge.commands.map_watch import watch
    from edgewake.protocol import installation
    from edgewake.protocol.broker import BrokerConfig
    from edgewake.protocol.errors import ConfigError, RemoteError, Unavailable

    maps = _maps(file, zone)
    try:
        address = Address.parse(mqtt or installation.find().mqtt or "127.0.0.1:1883")
        broker = BrokerConfig(
            host=address.host, port=address.port, username=username,
            password_file=password_file, ca_file=ca_file,
        )  # fmt: skip
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(watch(maps, broker, count=count, as_json=as_json, say=_say))
    except ConfigError as error:
        _fail(str(error), 2)
    except (Unavailable, RemoteError, OSError) as error:
        _fail(str(error), 1)


def _say(text: str) -> None:
    """Print; the end where who reads us has enough, such as `head`: no fault of the broker's."""
    import os
    import sys

    try:
        click.echo(text)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _maps(file: str, zone: str) -> Maps:
    from edgewake.protocol.errors import ConfigError
    from edgewake.protocol.maps import presets
    from edgewake.protocol.maps.map_file import MapFile

    path = Path(file)
    is_preset = not path.exists() and file in presets.names()
    if not is_preset and not path.exists() and "/" not in file and "." not in file:
        _fail(f"{file}: no such file, and no preset: there are {', '.join(presets.names())}", 2)
    try:
        if is_preset:
            return MapFile(None, (file,), zone=zone).maps
        return MapFile(path, zone=zone).maps
    except (ConfigError, ValueError) as error:
        _fail(str(error), 2)


def _fail(text: str, code: int) -> NoReturn:
    click.echo(f"edgewake map: {text}", err=True)
    sys.exit(code)
