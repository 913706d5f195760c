"""A bad wire: a network of its own for a broker, reached through a wire that loses packets, is
slow, is long, or is cut without a word.

Two TUN devices, one of them in a network namespace, and a thread that carries real IP packets
between them as it is told; so it is the kernel's TCP that meets the loss, whatever queueing
disciplines the kernel was built with. Needs root.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import random
import select
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from edgewake.deploy.programs import mosquitto
from tests.services import Process, free_ports, wait_until

TUN = Path("/dev/net/tun")
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
PACKET_BYTES = 2048
MTU = 1400
QUEUE_BYTES = 16_000
"""What a router of the way holds at most; what comes then is lost, too."""

needs_network = pytest.mark.skipif(
    os.geteuid() != 0 or not TUN.exists(), reason="a network of its own needs root and /dev/net/tun"
)

T = TypeVar("T")


@dataclass
class Wire:
    """What it does to packets, changed while it runs; and what it did."""

    loss: float = 0.0
    bytes_per_s: float | None = None
    delay_s: float = 0.0
    is_cut: bool = False
    lost: int = 0
    carried: int = 0
    swallowed: int = 0
    """Packets that came while it was cut."""
    rng: random.Random = field(default_factory=lambda: random.Random(1))

    def due_s(self, size: int, now_s: float, free_s: float) -> float | None:
        """When a packet has left the wire; None where it never does.

        `free_s`: when the one before it has. Pure but for the counts.
        """
        if self.is_cut:
            self.swallowed += 1
            return None
        rate = self.bytes_per_s
        if self.rng.random() < self.loss or (
            rate is not None and (free_s - now_s) * rate > QUEUE_BYTES
        ):
            self.lost += 1
            return None
        self.carried += 1
        return max(now_s, free_s) + (0.0 if rate is None else size / rate)


class Carrier(threading.Thread):
    """Carries packets between two devices until it is stopped."""

    def __init__(self, wire: Wire, ends: tuple[int, int]) -> None:
        super().__init__(daemon=True, name="wire")
        self._wire = wire
        self._to = dict(zip(ends, reversed(ends), strict=True))
        self._free_s = dict.fromkeys(ends, 0.0)
        self._flying: list[tuple[float, int, int, bytes]] = []
        self._count = 0
        self._is_over = False

    def run(self) -> None:
        while not self._is_over:
            wait_s = (
                0.1
                if not self._flying
                else max(0.0, min(0.1, self._flying[0][0] - time.monotonic()))
            )
            for end in select.select(list(self._to), [], [], wait_s)[0]:
                self._take(end, os.read(end, PACKET_BYTES))
            while self._flying and self._flying[0][0] <= time.monotonic():
                _, _, end, packet = heapq.heappop(self._flying)
                os.write(end, packet)

    def _take(self, end: int, packet: bytes) -> None:
        now_s = time.monotonic()
        due_s = self._wire.due_s(len(packet), now_s, self._free_s[end])
        if due_s is not None:
            self._free_s[end], self._count = due_s, self._count + 1
            heapq.heappush(
                self._flying, (due_s + self._wire.delay_s, self._count, self._to[end], packet)
            )

    def stop(self) -> None:
        """And wait for its end."""
        self._is_over = True
        self.join()


@dataclass
class FarBroker:
    """A Mosquitto at the other end of the wire."""

    host: str
    port: int
    namespace: str
    wire: Wire

    def socket_beside(self) -> socket.socket:
        """A connection to it from its own network, where the wire does nothing. Raises OSError."""
        return in_namespace(
            self.namespace, lambda: socket.create_connection((self.host, self.port))
        )


def in_namespace(name: str, make: Callable[[], T]) -> T:
    """What a function makes in a network namespace: a socket stays there, whoever uses it.

    Raises what it raises.
    """
    made: list[T | OSError] = []

    def enter() -> None:
        with Path("/run/netns", name).open() as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        try:
            made.append(make())
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=enter)  # it is this thread that is elsewhere, and it ends
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]


def ip(*words: str) -> None:
    """Configure the network. Raises CalledProcessError."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


def tun(name: str) -> int:
    """A new device; it is gone when its descriptor is closed."""
    fd = os.open(TUN, os.O_RDWR)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return fd


@dataclass(frozen=True)
class FarNetwork:
    """A network of its own, with one machine in it."""

    namespace: str
    near: str
    """Our address on the wire to it."""
    far: str
    """Its."""
    wire: Wire


@contextmanager
def far_network() -> Iterator[FarNetwork]:
    """A network of its own, and the wire to it."""
    name = f"ew{os.getpid()}"
    # RFC 2544: for tests of networks.
    near, far = (f"198.18.{os.getpid() % 250}.1", f"198.18.{os.getpid() % 250}.2")
    ip("netns", "add", name)
    ends: list[int] = []
    try:
        ends += [tun(f"{name}a"), tun(f"{name}b")]
        ip("link", "set", f"{name}b", "netns", name)
        ip("-n", name, "link", "set", "lo", "up")
        for where, device, own, other in (
            ([], f"{name}a", near, far),
            (["-n", name], f"{name}b", far, near),
        ):
            ip(*where, "address", "add", own, "peer", other, "dev", device)
            ip(*where, "link", "set", device, "mtu", str(MTU), "up")
        wire = Wire()
        carrier = Carrier(wire, (ends[0], ends[1]))
        carrier.start()
        try:
            yield FarNetwork(name, near, far, wire)
        finally:
            carrier.stop()
    finally:
        for end in ends:
            os.close(end)
        ip("netns", "delete", name)


@contextmanager
def far_broker(directory: Path) -> Iterator[FarBroker]:
    """A Mosquitto in a network of its own, and the wire to it."""
    with (
        far_network() as network,
        _mosquitto(directory, network.namespace, network.far) as port,
    ):
        yield FarBroker(network.far, port, network.namespace, network.wire)


@contextmanager
def _mosquitto(directory: Path, namespace: str, host: str) -> Iterator[int]:
    (port,) = free_ports(1)
    directory.mkdir(parents=True, exist_ok=True)
    broker = mosquitto.Broker(program=mosquitto.ensure(), directory=directory, port=port, host=host)
    mosquitto.prepare(broker)
    with Process(
        ["ip", "netns", "exec", namespace, *mosquitto.command(broker)], directory / "mosquitto.log"
    ) as process:

        def is_open() -> bool:
            assert process.is_running(), process.output()[-1000:]
            try:
                in_namespace(namespace, lambda: socket.create_connection((host, port))).close()
            except OSError:
                return False
            return True

        wait_until(is_open, "Mosquitto takes connections")
        yield port
