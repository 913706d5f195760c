"""Who is told: a webhook's receiver and a mail server, both real, that can be away."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session
from standardwebhooks.webhooks import Webhook

from tests.services import free_ports

SECRET = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVoxMjM0NTY="


@dataclass
class Hook:
    """A receiver of webhooks; what it takes is verified with the secret."""

    port: int
    status: int = 204
    calls: list[dict[str, Any]] = field(default_factory=list)
    """Of all attempts, with the message's id and the header by which the sender may call."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def ids(self, kind: str = "firing") -> list[str]:
        """Ids of what was told of alerts that fire, or are resolved."""
        return [call["webhook-id"] for call in self.calls if call[kind]]


@contextmanager
def hook() -> Iterator[Hook]:
    (port,) = free_ports(1)
    receiver = Hook(port)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            Webhook(SECRET).verify(body, dict(self.headers))
            call = json.loads(body) | {
                "webhook-id": self.headers["webhook-id"],
                "authorization": self.headers["authorization"],
            }
            receiver.calls.append(call)
            self.send_response(receiver.status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing on standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()


@dataclass
class Mail:
    """A mail server."""

    port: int
    letters: list[Message] = field(default_factory=list)

    @property
    def address(self) -> str:
        """As Apprise has it."""
        return (
            f"mailto://127.0.0.1:{self.port}/?mode=insecure&from=edgewake@example.org"
            "&to=oncall@example.org"
        )

    async def handle_DATA(  # noqa: N802
        self, _server: SMTP, _session: Session, envelope: Envelope
    ) -> str:
        """aiosmtpd's own name for what is done with a letter."""
        content = envelope.content
        assert isinstance(content, bytes)
        self.letters.append(message_from_bytes(content))
        return "250 OK"


def text_of(letter: Message) -> str:
    """What a person reads of a letter."""
    pieces = [part.get_payload(decode=True) for part in letter.walk() if not part.is_multipart()]
    return "".join(piece.decode() for piece in pieces if isinstance(piece, bytes))


@contextmanager
def mail() -> Iterator[Mail]:
    (port,) = free_ports(1)
    receiver = Mail(port)
    controller = Controller(receiver, hostname="127.0.0.1", port=port)
    controller.start()
    try:
        yield receiver
    finally:
        controller.stop()
