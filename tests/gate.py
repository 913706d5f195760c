"""A TCP proxy that can be shut: nothing passes then, and neither side is told, as where a network
is cut. Threads, so no event loop.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Gate:
    """Listens on `port`.

    What comes while it is shut is held, with its connections, until it is opened.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._is_open = threading.Event()
        self._is_open.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.held = 0
        """Pieces that were held, and connections: was there anything to cut?"""
        self._sockets: set[socket.socket] = set()
        threading.Thread(target=self._accept, name="gate", daemon=True).start()

    def shut(self) -> None:
        """Let nothing pass."""
        self._is_open.clear()

    def open(self) -> None:
        """Let pass again, what was held first."""
        self._is_open.set()

    def close(self) -> None:
        """End, with all connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._is_open.set()
        for one in list(self._sockets):
            _end(one)

    def _wait(self) -> None:
        if not self._is_open.is_set():
            self.held += 1
            self._is_open.wait()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), name="gate", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._wait()
        try:
            server = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            client.close()
            return
        self._sockets |= {client, server}
        back = threading.Thread(
            target=self._pass_on, args=(server, client), name="gate", daemon=True
        )
        back.start()
        self._pass_on(client, server)
        back.join()
        self._sockets -= {client, server}
        client.close()
        server.close()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(65_536):
                self._wait()
                sink.sendall(piece)
        _end(source)
        _end(sink)


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


@contextmanager
def gate(target: int) -> Iterator[Gate]:
    """An open one in front of a port of the loopback."""
    made = Gate(target)
    try:
        yield made
    finally:
        made.close()
