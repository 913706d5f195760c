"""A provider that says what a test has it say: to see what is refused."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from edgewake.cloud.login.config import LoginConfig
from edgewake.cloud.login.desk import Begun, Desk
from tests.rights.forge import Maker, key_set


@dataclass
class Forged:
    """See the module. Its answers are data; `claims` change what is true."""

    port: int = 0
    maker: Maker = field(default_factory=Maker)
    claims: dict[str, Any] = field(default_factory=dict)
    described: dict[str, Any] = field(default_factory=dict)
    token_answer: Any = None
    """In place of a right one."""
    answered: dict[str, Any] = field(default_factory=dict)
    """Changes to what its token endpoint answers."""
    status: int = 200
    nonce: str = ""
    """Of the login that is under way; empty: the code is the nonce, for many at once."""
    is_silent: bool = False
    holds_tokens: asyncio.Event | None = None
    """What its token endpoint waits for before it answers."""
    asked: list[str] = field(default_factory=list)
    forms: list[Mapping[str, list[str]]] = field(default_factory=list)

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, path: str, form: Mapping[str, list[str]]) -> tuple[int, Any]:
        if path.endswith("openid-configuration"):
            return 200, {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/auth",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/jwks",
            } | self.described
        if path == "/jwks":
            return 200, json.loads(key_set(self.maker))
        self.forms.append(form)
        if self.token_answer is not None:
            return self.status, self.token_answer
        said: dict[str, Any] = {
            "iss": self.issuer,
            "aud": "edgewake",
            "sub": "ann",
            "groups": ["staff"],
            "nonce": self.nonce or form.get("code", [""])[0],
            "iat": time.time(),
            "exp": time.time() + 600,
        }
        token = self.maker.token(**said | self.claims).decode()
        answer = {"access_token": "a", "id_token": token, "refresh_token": "r"}
        return self.status, answer | self.answered

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split()[1]
        length = next(
            (
                int(line.split(":")[1])
                for line in head.lower().splitlines()
                if line.startswith("content-length:")
            ),
            0,
        )
        form = parse_qs((await reader.readexactly(length)).decode())
        self.asked.append(path)
        if self.is_silent:
            await reader.read()
        else:
            if path == "/token" and self.holds_tokens is not None:
                await self.holds_tokens.wait()
            status, body = self.answer(urlsplit(path).path, form)
            sent = body if isinstance(body, bytes) else json.dumps(body).encode()
            writer.write(
                f"HTTP/1.1 {status} X\r\nContent-Length: {len(sent)}\r\n\r\n".encode() + sent
            )
        writer.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Forged]:
        """Serve."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()


def of_address(begun: Begun) -> dict[str, str]:
    """What the provider is asked for."""
    return {key: found[0] for key, found in parse_qs(urlsplit(begun.address).query).items()}


async def logged_in(desk: Desk, forged: Forged, **changes: Any) -> Any:
    """Log in at it, as a browser would; `changes` to what it brings back."""
    begun = await desk.begin("/", None)
    forged.nonce = of_address(begun)["nonce"]
    back = {
        "state": begun.state,
        "code": "c",
        "issuer": None,
        "refused": "",
        "pending": begun.cookie,
        "client": "192.0.2.1",
    }
    return await desk.finish(**back | changes)


def config_of(forged: Forged, key_file: Any, **more: Any) -> LoginConfig:
    """Of a server that people log in to there."""
    return LoginConfig(
        **{
            "issuer": forged.issuer,
            "client_id": "edgewake",
            "url": "http://127.0.0.1:8700",
            "session_key_file": key_file,
            "groups": {"staff": "everything"},
        }
        | more
    )
