"""`edgewake send`: one reading from a terminal."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click

from edgewake.edge.client import completion

MQTT_VARIABLE = "EDGEWAKE_MQTT"


@click.command()
@click.argument("device")
@click.argument("stream", shell_complete=completion.streams)
@click.argument("reading", metavar="JSON")
@click.option(
    "--ack", is_flag=True, help="Wait until the cloud has the reading and print its ack token."
)
@click.option(
    "--mqtt",
    metavar="HOST:PORT",
    envvar=MQTT_VARIABLE,
    help=f"MQTT broker; default: a running `edgewake up`'s. [env: {MQTT_VARIABLE}]",
)
@click.option(
    "--timeout",
    "timeout_s",
    default=30.0,
    show_default=True,
    type=click.FloatRange(0.1, 3600),
    help="Seconds to wait at most.",
)
def send(
    device: str, stream: str, reading: str, ack: bool, mqtt: str | None, timeout_s: float
) -> None:
    """Send one reading of DEVICE on STREAM, a JSON object such as '{"temperature": 21.5}'.

    Exit code 1: it was not sent, or the cloud refused it. 2: it cannot be sent.
    """
    import asyncio

    from edgewake.edge.client.send import Address, Reading
    from edgewake.edge.client.send import send as publish
    from edgewake.protocol import installation, topics
    from edgewake.protocol.clock import SystemClock
    from edgewake.protocol.errors import ConfigError, Rejected, RemoteError, Unavailable
    from edgewake.protocol.frames import frame
    from edgewake.protocol.frames.ack import Later

    try:
        topics.parse_up(f"{topics.ROOT}/{device}/up/{stream}")
        frame.from_plain(reading.encode(), received_at=SystemClock().now_ms())
        address = mqtt or installation.find().mqtt
        if not address:
            raise ConfigError(
                f"no MQTT address: set --mqtt or {MQTT_VARIABLE}, or start `edgewake up` and set "
                f"{installation.DATA_VARIABLE} to its data"
            )
        found = Address.parse(address)
    except Rejected as error:
        _fail(str(error).partition(": ")[2], 2)
    except (ConfigError, UnicodeEncodeError) as error:
        _fail(str(error), 2)
    message = Reading(device, stream, reading.encode())
    try:
        answer = asyncio.run(
            publish(
                found, message, correlation=os.urandom(8), timeout_s=timeout_s, wait_for_ack=ack
            )
        )
    except (Unavailable, RemoteError) as error:
        _fail(str(error), 1)
    if answer is None:
        return
    if isinstance(answer, Later):
        _fail(
            f"not now ({answer.reason}), again in {answer.retry_after_ms / 1000:g} s: "
            f"{answer.detail}",
            1,
        )
    click.echo(str(answer.token))
    if answer.rejected is not None:
        _fail(f"refused ({answer.rejected}), kept as a dead letter: {answer.detail}", 1)


def _fail(text: str, code: int) -> NoReturn:
    click.echo(f"edgewake send: {text}", err=True)
    sys.exit(code)
