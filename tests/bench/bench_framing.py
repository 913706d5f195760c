"""What a message to a WebSocket costs a server by each implementation of uvicorn, and by ours.

Method. One server at a time, one process under uvloop, without compression and pings; CLIENTS
connections on loopback, each sent the same EVENTS texts of 200 bytes, each a message of its own.
The clients are one process that reads bytes and takes nothing apart. A figure is the server's own
processor time for a message, from the moment that all clients are there to the end of the last
connection. Every client counts the bytes that came, and the benchmark fails unless they are exactly
those of EVENTS frames. The implementations follow one another within a run.

`ours` is uvicorn's protocol on wsproto with a frame that is made once and written beside it, as
access servers do (cloud/access/sockets/protocol.py). The others cannot be given a frame: each
message is framed for each client.

`python -m tests.bench.bench_framing [--runs 3] [--json FILE] [--clients 200] [--events 2000]`
"""

from __future__ import annotations

import selectors
import socket
import subprocess
import sys
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.bench.figures import Found, run
from tests.bench.readers.framing_server import FRAME, OURS
from tests.services import PATIENCE_S, free_ports, wait_until

LIMITS: Final = """
Of all of them most is the system's call that writes; what differs is the framing and how many
coroutines a message goes through.
"""
CLIENTS: Final = 200
EVENTS: Final = 2000
KINDS: Final = ("wsproto", "websockets", "websockets-sansio", OURS)
HANDSHAKE: Final = (
    b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
CLOSE: Final = b"\x88\x82\0\0\0\0\x03\xe8"
"""1000, with a mask of zeros."""


def measure(_folder: Path, runs: int, *, clients: int = CLIENTS, events: int = EVENTS) -> Found:
    """Start what is needed, run, and stop it again."""
    found: Found = defaultdict(list)
    for _ in range(runs):
        for kind in KINDS:
            found[f"a message of 200 bytes by {kind}", "µs", None].append(
                _one(kind, clients, events)
            )
    return found


def _one(kind: str, clients: int, events: int) -> float:
    """The server's processor time for a message, µs."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "tests.bench.readers.framing_server"]
    arguments = [kind, str(port), str(clients), str(events)]
    with (
        subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True) as server,
        ExitStack() as stack,
    ):
        stack.callback(server.kill)
        wait_until(lambda: _answers(port), "the server listens")
        lines = [stack.enter_context(_open(port)) for _ in range(clients)]
        counted = _read(lines, len(FRAME) * events)
        assert set(counted) == {len(FRAME) * events}, "each got all of it, and nothing else"
        for line in lines:
            line.sendall(CLOSE)
        assert server.stdout is not None
        used_s = float(server.stdout.readline())
        server.wait(PATIENCE_S)
    return 1e6 * used_s / (clients * events)


def _answers(port: int) -> bool:
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


def _open(port: int) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
    line.sendall(HANDSHAKE)
    return line


def _read(lines: list[socket.socket], wanted: int) -> list[int]:
    """The bytes of frames that came on each, once all that was wanted came on all."""
    got = dict.fromkeys(lines, 0)
    heads = dict.fromkeys(lines, b"")
    with selectors.DefaultSelector() as selector:
        for line in lines:
            selector.register(line, selectors.EVENT_READ, line)
        while min(got.values()) < wanted:
            ready = selector.select(PATIENCE_S)
            assert ready, "something comes until all came"
            for key, _ in ready:
                line = key.data
                data: bytes = line.recv(1 << 18)
                assert data, "the server keeps the connection"
                if not heads[line].endswith(b"\r\n\r\n"):
                    head, end, data = (heads[line] + data).partition(b"\r\n\r\n")
                    heads[line] = head + end
                got[line] += len(data)
    return list(got.values())


if __name__ == "__main__":
    run(measure, __doc__, sizes={"clients": CLIENTS, "events": EVENTS}, each_alone=True)
