"""What is sent as fast as the broker takes it: no client library can."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mqtt5

from tests.deploy.production import CONNECT_V5
from tests.hostile.world import World
from tests.services import PATIENCE_S

AT_ONCE = 500
"""Messages in one piece."""
CONNACK = 0x20


@contextmanager
def raw_socket(here: World, device: str) -> Iterator[socket.socket]:
    """A device's connection, behind its CONNECT."""
    context = here.site.context("devices", device)
    address = ("127.0.0.1", here.site.ports["devices"])
    with (
        socket.create_connection(address, timeout=PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as tls,
    ):
        tls.sendall(CONNECT_V5)
        assert tls.recv(100)[0] == CONNACK
        yield tls


@contextmanager
def raw_flood(
    here: World, topic: str, *payloads: bytes, **more: Any
) -> Iterator[Callable[[], None]]:
    """Send AT_ONCE messages (QoS 0) of `attacker` with each call."""
    packets = [mqtt5.PublishPacket(topic, one, **more).write() for one in payloads]
    blob = b"".join(packets[n % len(packets)] for n in range(AT_ONCE))
    with raw_socket(here, "attacker") as tls:
        yield lambda: tls.sendall(blob)
