"""What is sent as fast as the broker takes it: no client library can."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mqtt5

from tests.deploy.production import CONNECT_V5, Site
from tests.hostile.world import World
from tests.services import PATIENCE_S

AT_ONCE = 500
"""Messages in one piece."""
CONNACK = 0x20


@contextmanager
def raw_socket(site: Site, device: str, hello: bytes = CONNECT_V5) -> Iterator[socket.socket]:
    """A device's connection, behind its CONNECT."""
    context = site.context("devices", device)
    address = ("127.0.0.1", site.ports["devices"])
    with (
        socket.create_connection(address, timeout=PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as tls,
    ):
        tls.sendall(hello)
        answer = tls.recv(100)
        if (answer[:1], answer[3:4]) != (bytes([CONNACK]), b"\0"):
            raise ConnectionRefusedError(f"the broker answers {answer!r}")
        yield tls


@contextmanager
def raw_flood(
    here: World, topic: str, *payloads: bytes, **more: Any
) -> Iterator[Callable[[], None]]:
    """Send AT_ONCE messages (QoS 0) of `attacker` with each call."""
    packets = [mqtt5.PublishPacket(topic, one, **more).write() for one in payloads]
    blob = b"".join(packets[n % len(packets)] for n in range(AT_ONCE))
    with raw_socket(here.site, "attacker") as tls:
        yield lambda: tls.sendall(blob)
