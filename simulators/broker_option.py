"""Where the simulators' broker is: --host and --port, or what a running `edgewake up` says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

HOST: Final = "127.0.0.1"
PORT: Final = 1883

F = TypeVar("F", bound=Callable[..., Any])


def broker_options(command: F) -> F:
    """The options --host and --port; `address` makes an address of them."""
    running = "default: a running `edgewake up`'s, or"
    command = click.option(
        "--port", type=click.IntRange(1, 65535), help=f"Its port; {running} {PORT}."
    )(command)
    return click.option("--host", help=f"MQTT broker; {running} {HOST}.")(command)


def address(host: str | None, port: int | None) -> tuple[str, int]:
    """Host and port.

    What is not given comes from $EDGEWAKE_MQTT (host:port) or from a running system.
    """
    import os

    from edgewake.protocol import installation

    found_host, _, found_port = (
        os.environ.get("EDGEWAKE_MQTT") or installation.find().mqtt
    ).rpartition(":")
    if found_port and not found_port.isdigit():
        raise click.UsageError(f"EDGEWAKE_MQTT: expected host:port, found {found_port[:100]!r}")
    return host or found_host or HOST, port or (int(found_port) if found_port else PORT)
