"""A client behind a login: what it shows, to whom, and what it never prints.

Servers are sockets that keep what they were sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from edgewake.edge.client.credentials import (
    RENEW_S,
    Credentials,
    TokenFile,
    may_follow,
    without_password,
)
from edgewake.edge.client.follow import (
    BACKOFF_MAX_S,
    Connected,
    Follower,
    FollowError,
    Lost,
    Received,
)
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.leases.lease import Subscription
from tests.deploy.production import certificates
from tests.feeds import DEADLINE_S

EVENT = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\nid: "
    b'v2.x\ndata: {"n":1}\n\n'
)


class Seen:
    """A server that answers each request with the next answer, and keeps their heads."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.heads: list[str] = []
        self.base = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            writer.write(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def serving(*answers: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[Seen]:
    seen = Seen(*answers)
    listening = await asyncio.start_server(seen.serve, "127.0.0.1", 0, ssl=tls)
    async with listening:
        seen.base = (
            f"{'https' if tls else 'http'}://localhost:{listening.sockets[0].getsockname()[1]}"
        )
        yield seen


def redirect(to: str, status: str = "307 Temporary Redirect") -> bytes:
    headers = f"Location: {to}\r\nContent-Length: 0\r\nConnection: close\r\n"
    return f"HTTP/1.1 {status}\r\n{headers}\r\n".encode()


async def first(
    server: str,
    credentials: Credentials | None = None,
    notices: list[Connected | Lost] | None = None,
) -> Received:
    told: list[Connected | Lost] = [] if notices is None else notices
    following = Follower(
        [server],
        Subscription(streams=("s",)),
        credentials=credentials,
        patient=False,
        rng=random.Random(1),
        on_notice=told.append,
    )
    async with asyncio.timeout(DEADLINE_S), contextlib.aclosing(following.events()) as events:
        return await anext(events)


async def test_a_token_and_headers_are_sent() -> None:
    async with serving(EVENT) as seen:
        await first(seen.base, Credentials(token="t0ken", headers={"X-Tenant": "north"}))
    assert "authorization: bearer t0ken" in seen.heads[0].lower()
    assert "x-tenant: north" in seen.heads[0].lower()
    assert "t0ken" not in repr(Credentials(token="t0ken"))


REFUSED = (
    b"HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nContent-Length: 24\r\n"
    b'Connection: close\r\n\r\n{"detail":"it is wrong"}\n'
)


def tokens_of(seen: Seen) -> list[str]:
    return re.findall(r"authorization: bearer (\S+)", "".join(seen.heads).lower())


async def test_a_token_is_read_again_from_its_file_at_each_connection(tmp_path: Path) -> None:
    """It was read once: after an hour each client stopped, with a good token in its file."""
    file = tmp_path / "token"
    file.write_text("one\n")
    async with serving(EVENT) as seen:
        follower = Follower(
            [seen.base],
            Subscription(streams=("s",)),
            credentials=Credentials(token=TokenFile(file)),
            rng=random.Random(1),
        )
        async with asyncio.timeout(DEADLINE_S), contextlib.aclosing(follower.events()) as events:
            for text in ("two", "", "three"):
                await anext(events)
                file.write_text(text)
            await anext(events)
            file.unlink()
            await anext(events)
    assert tokens_of(seen) == ["one", "two", "two", "three", "three"], (
        "an empty one is being written"
    )


async def test_a_token_that_is_refused_and_renewed_meanwhile_is_tried_again(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    notices: list[Connected | Lost] = []

    def renew(notice: Connected | Lost) -> None:
        notices.append(notice)
        if isinstance(notice, Lost) and "401" in notice.why:
            file.write_text("new")

    async with serving(EVENT, REFUSED, REFUSED, EVENT) as seen:
        follower = Follower(
            [seen.base],
            Subscription(streams=("s",)),
            credentials=Credentials(token=TokenFile(file)),
            rng=random.Random(1),
            on_notice=renew,
        )
        async with asyncio.timeout(DEADLINE_S), contextlib.aclosing(follower.events()) as events:
            await anext(events)
            await anext(events)
    assert tokens_of(seen) == ["old", "old", "new", "new"]


async def test_a_token_that_is_refused_at_once_is_wrong(tmp_path: Path) -> None:
    """Also one of a file: nobody waits for another one that was let in never."""
    file = tmp_path / "token"
    file.write_text("wrong")
    async with serving(REFUSED) as seen:
        for credentials in (Credentials(token=TokenFile(file)), Credentials(token="wrong")):
            with pytest.raises(FollowError):
                await first(seen.base, credentials)
    assert len(seen.heads) == 2


async def test_a_token_that_is_late_after_its_server_was_away_is_waited_for(
    tmp_path: Path,
) -> None:
    """A minute of that server's absence, and the program ended at its first refusal."""
    file, clock = tmp_path / "token", FakeClock()
    file.write_text("old")
    busy = b"HTTP/1.1 503 x\r\nRetry-After: 90\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

    def renew(notice: Connected | Lost) -> None:
        if isinstance(notice, Lost) and "401" in notice.why:
            file.write_text("new")

    async with serving(EVENT, busy, REFUSED, EVENT) as seen:
        follower = Follower(
            [seen.base],
            Subscription(streams=("s",)),
            credentials=Credentials(token=TokenFile(file)),
            rng=random.Random(1),
            clock=clock,
            on_notice=renew,
        )
        async with asyncio.timeout(DEADLINE_S), contextlib.aclosing(follower.events()) as events:
            await anext(events)
            await anext(events)
    assert clock.monotonic_s() > RENEW_S, "it was away"
    assert tokens_of(seen) == ["old", "old", "old", "new"]


async def test_a_token_that_is_not_renewed_within_a_minute_is_the_end(tmp_path: Path) -> None:
    file, clock = tmp_path / "token", FakeClock()
    file.write_text("old")
    notices: list[Connected | Lost] = []
    async with serving(EVENT, REFUSED) as seen:
        follower = Follower(
            [seen.base],
            Subscription(streams=("s",)),
            credentials=Credentials(token=TokenFile(file)),
            rng=random.Random(1),
            clock=clock,
            on_notice=notices.append,
        )
        async with asyncio.timeout(DEADLINE_S), contextlib.aclosing(follower.events()) as events:
            await anext(events)
            with pytest.raises(FollowError):
                await anext(events)
    waited_s = sum(notice.wait_s for notice in notices if isinstance(notice, Lost))
    assert RENEW_S <= waited_s < RENEW_S + 2 * BACKOFF_MAX_S


@pytest.mark.parametrize("content", ["", " \n", "gr\u00fcn", "two\nlines"])
def test_a_file_without_a_token_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    with pytest.raises(ValueError, match="expected a token in printable ASCII"):
        TokenFile(file)


async def test_a_password_in_an_address_is_sent_and_shown_nowhere() -> None:
    notices: list[Connected | Lost] = []
    refused = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    async with serving(refused, EVENT) as seen:
        await first(seen.base.replace("://", "://ann:s%40cret@"), notices=notices)
    assert "Basic YW5uOnNAY3JldA==" in seen.heads[0]
    assert [type(notice) for notice in notices] == [Lost, Connected]
    assert not [notice for notice in notices if "cret" in repr(notice) or "ann" in notice.server]


@pytest.mark.parametrize(
    "wrong", ["ftp://ann:secret@host", "http://ann:secret@", "ann:secret@host:8700"]
)
def test_a_wrong_address_is_named_without_its_password(wrong: str) -> None:
    with pytest.raises(ValueError, match="not an address of a server") as caught:
        Follower([wrong], Subscription(streams=("s",)))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "status",
    [
        "301 Moved Permanently",
        "302 Found",
        "303 See Other",
        "307 Temporary Redirect",
        "308 Permanent Redirect",
    ],
)
async def test_a_redirect_is_followed_with_its_query(status: str) -> None:
    async with (
        serving(EVENT) as seen,
        serving(redirect(f"{seen.base}/elsewhere?stream=s", status)) as front,
    ):
        assert (await first(front.base)).fields == {"n": 1}
    assert seen.heads[0].startswith("GET /elsewhere?stream=s HTTP/1.1")


async def test_a_token_is_not_given_to_where_a_redirect_leads_and_that_is_named() -> None:
    """It retried for ever, and named nothing."""
    async with (
        serving(EVENT) as seen,
        serving(redirect(f"{seen.base}/v1/events?token=other")) as front,
    ):
        with pytest.raises(
            FollowError, match=f"redirects to {seen.base}/v1/events, which is not followed"
        ) as refused:
            await first(front.base, Credentials(token="t0ken"))
    assert seen.heads == []
    assert "other" not in str(refused.value)


async def test_a_circle_of_redirects_ends() -> None:
    async with serving(redirect("/again")) as seen:
        with pytest.raises(FollowError, match="redirects more than 5 times"):
            await first(seen.base)


@pytest.mark.parametrize(
    ("origin", "target", "secret", "plain"),
    [
        ("http://a/x", "http://a/y", True, True),
        ("http://a/x", "https://a/x", True, True),
        ("http://a:8700/x", "https://a:8443/x", True, True),
        ("http://a/x", "http://b/x", False, True),
        ("http://a/x", "http://a:81/x", False, True),
        ("https://a/x", "http://a/x", False, False),
        ("http://a/x", "file:///etc/passwd", False, False),
    ],
)
def test_a_redirect_leads_no_secret_elsewhere(
    origin: str, target: str, secret: bool, plain: bool
) -> None:
    assert (
        may_follow(origin, target, has_secrets=True),
        may_follow(origin, target, has_secrets=False),
    ) == (secret, plain)


@pytest.mark.parametrize(
    "status", ["201 Created", "205 Reset Content", "206 Partial Content", "210 Odd", "299 Odd"]
)
async def test_what_says_that_all_is_well_and_is_no_stream_is_final_as_for_a_browser(
    status: str,
) -> None:
    async with serving(
        f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
    ) as seen:
        with pytest.raises(
            FollowError, match=f"answered {status[:3]}, which is not a stream of events"
        ):
            await first(seen.base)
    assert len(seen.heads) == 1


async def test_a_private_authority_and_an_own_certificate(tmp_path: Path) -> None:
    """The server asks for a certificate; who has none, or does not know the authority, gets
    nothing.
    """
    done = await asyncio.to_thread(certificates, tmp_path)
    assert done.returncode == 0, done.stderr
    authority = tmp_path / "broker" / "devices-ca.crt"
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority))
    tls.load_cert_chain(tmp_path / "front" / "server.crt", tmp_path / "front" / "server.key")
    async with serving(EVENT, tls=tls) as seen:
        assert (await first(seen.base, Credentials(ca_file=authority))).fields == {"n": 1}
        with pytest.raises(FollowError, match="not trusted"):
            await first(seen.base)
        tls.verify_mode = ssl.CERT_REQUIRED
        own = Credentials(
            ca_file=authority,
            cert_file=tmp_path / "front" / "server.crt",
            key_file=tmp_path / "front" / "server.key",
        )
        assert own.context().cert_store_stats()["x509_ca"] > 0


@pytest.mark.parametrize("headers", [{"X Tenant": "a"}, {"X-Tenant": "a\r\nHost: b"}, {"": "a"}])
def test_a_header_that_is_none_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="expected NAME: VALUE"):
        Credentials(headers=headers)


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no\.pem|No such file"):
        Credentials(ca_file=tmp_path / "no.pem")


def test_an_address_without_a_password_stays_as_it_is() -> None:
    assert without_password("http://127.0.0.1:8700/base") == ("http://127.0.0.1:8700/base", {})
    assert without_password("http://a:b@[::1]:8700")[0] == "http://[::1]:8700"


@pytest.mark.parametrize("target", ["http://[", "http://127.0.0.1:99999/v1/events"])
async def test_a_redirect_to_what_is_no_address_is_refused(target: str) -> None:
    """It ended the client with a traceback, though another server would have done."""
    async with serving(redirect(target)) as seen:
        with pytest.raises(FollowError, match="redirects to an address that is not valid"):
            await first(seen.base)
