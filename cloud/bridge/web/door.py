"""The bridge's door for HTTP. What is answered is true and stays true.

    200 (or the form's own word)  Kafka has the readings; it says how many, and which were refused
    422, 400                      nothing of it was a reading
    429                           its device sends more than one may; `Retry-After` says how long
    503                           Kafka has not confirmed it within TAKE_S, or memory is full:
                                  send it again

A request holds its bytes until it is answered; they are bounded, of one client and of all together.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil
from typing import Any, Final, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from edgewake.cloud.bridge.admission.allowance import Account
from edgewake.cloud.bridge.admission.catalogue import too_much
from edgewake.cloud.bridge.admission.mapped import Part
from edgewake.cloud.bridge.admission.records import device_in
from edgewake.cloud.bridge.mqtt.ack_ledger import Awaited
from edgewake.cloud.bridge.web import provisioning
from edgewake.cloud.bridge.web.provisioning import Provisioning
from edgewake.cloud.bridge.web.requests import Asked, Requests, readings_in
from edgewake.cloud.bridge.web.unsettled import GAVE_UP_S, Given, Unsettled
from edgewake.cloud.client_share import Bound, Clients
from edgewake.cloud.web.host import is_local
from edgewake.cloud.web.limits import CERTIFICATE
from edgewake.protocol.clock import Clock
from edgewake.protocol.maps.contents import JSON
from edgewake.protocol.maps.http_forms import (
    Form,
    Head,
    Outcome,
    Reply,
    is_question,
    thingsboard_kind,
    unpacked,
)
from edgewake.protocol.maps.http_identity import NO_BROWSER, is_from_a_page

log = logging.getLogger("edgewake.bridge.http")

TAKE_S: Final = 4.0
"""Seconds that a request waits for Kafka: clients of others have patience for 5 and more."""
PATIENCE_S: Final = 0.5
"""Seconds after which the end of a connection means that its sender gave up, and will send the same
again; Kafka mostly confirms within a tenth of that."""
ROOM_S: Final = 0.02
"""Seconds between two looks for room."""
ASIDE_BYTES: Final = 4096
"""Bytes of a body from which on it is read beside the loop, which serves MQTT meanwhile."""
QUESTION_BYTES_MAX: Final = 64 * 1024
"""Bytes of a question's body, which the loop reads. ThingsBoard's bound, too."""
READERS_MAX: Final = 2
"""Bodies that are read beside the loop at once: more would only take turns."""
RETRY_S: Final = 5
"""Seconds after which one that found no room may come again."""
NOT_NOW: Final = "not confirmed by Kafka, or no room for it now: send it again"


class Taker(Protocol):
    """What takes the readings: the bridge."""

    @property
    def is_full(self) -> bool:
        """Is nothing more taken now?"""

    def account(self, payer: str, *, is_named: bool = False) -> Account:
        """What a device has left; `is_named`: what all have that its payloads name."""

    def wait_s(self, device: str) -> float:
        """Seconds that a device has to wait."""

    def take(
        self, parts: Sequence[Part], payer: str, on_settled: Callable[[], None], *, is_named: bool
    ) -> Awaited:
        """See `Bridge.take`."""


class Sending(Protocol):
    """An answer that is too long to be in memory."""

    async def send(self, send: Send) -> None:
        """Send it. Raises TimeoutError, OSError."""


class Questions(Protocol):
    """What devices of ThingsBoard ask for: see `DeviceApi`."""

    def said(self, body: bytes) -> Mapping[str, Any]:
        """Read the attributes in a body, which may take long."""

    def heard(self, head: Head, said: Mapping[str, Any]) -> None:
        """Remember attributes that a device has sent."""

    async def answer(
        self, head: Head, body: bytes, account: Account, receive: Receive
    ) -> Reply | Sending:
        """Answer a question."""


class Door:
    """ASGI."""

    def __init__(
        self,
        requests: Requests,
        bridge: Taker,
        outcomes: Counter[str],
        *,
        body_bytes_max: int,
        bodies: Bound,
        clients: Clients,
        clock: Clock,
        trusts_machine: bool = False,
        tokens_for: Provisioning | None = None,
        questions: Questions | None = None,
    ) -> None:
        """A door that is closed until it is served.

        `bodies`: the bound on the bytes of all requests. `trusts_machine`: clients on this machine
        need no credentials. `tokens_for`: answers who asks for a token; None: nobody does.
        `questions`: answers devices of ThingsBoard; None: nobody does.
        """
        self._requests = requests
        self._bridge = bridge
        self._outcomes = outcomes
        self._body_bytes_max = body_bytes_max
        self._bodies = bodies
        self._held: Counter[str] = Counter()
        """Bytes by client."""
        self._clients = clients
        self._clock = clock
        self._trusts_machine = trusts_machine
        self._provisioning = tokens_for
        self._questions = questions
        self._readers = asyncio.Semaphore(READERS_MAX)
        self._unsettled = Unsettled()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _headers(scope)
        if self._provisioning is not None and scope["path"] == provisioning.PATH:
            answer = await self._provisioned(receive, self._client(scope, headers), headers)
            await answer(scope, receive, send)
            return
        is_trusted = self._trusts_machine and is_local(scope)
        shown = scope.get("state", {}).get(CERTIFICATE)
        asked = self._requests.asked(_head(scope, headers), is_trusted=is_trusted, shown=shown)
        if isinstance(asked, Reply):
            self._outcomes["asked" if asked.status < 300 else "denied"] += 1
            await _response(asked)(scope, receive, send)
            return
        account = self._bridge.account(asked.payer, is_named=asked.is_named)
        wait_s = account.wait_s(self._clock.monotonic_s())
        if wait_s > 0:
            outcome = _too_much(asked.payer, wait_s)
        elif asked.form is Form.THINGSBOARD and is_question(asked.head):
            await self._answered(scope, receive, send, asked, account)
            return
        else:
            outcome, wait_s = await self._taken(
                receive, asked, account, self._client(scope, headers)
            )
        self._outcomes[_word(outcome)] += 1
        answer = _response(asked.reply(outcome), ceil(wait_s))
        await answer(scope, receive, send)

    async def _provisioned(
        self, receive: Receive, client: str, headers: Mapping[str, str]
    ) -> Response:
        """Answer who asks for a token, in ThingsBoard's words."""
        assert self._provisioning is not None, "it was asked"
        if is_from_a_page(headers):
            return Response(provisioning.refused(NO_BROWSER), 403, media_type=JSON)
        chunks: list[bytes] = []
        try:
            refused = await self._read(receive, client, chunks, QUESTION_BYTES_MAX)
            if refused is not None:
                body = provisioning.refused(refused.detail)
                return Response(body, refused.status, media_type=JSON)
            said = provisioning.asked(b"".join(chunks))
        finally:
            self._release(client, chunks)
        return Response(await self._provisioning.answer(said, client), media_type=JSON)

    async def _answered(
        self, scope: Scope, receive: Receive, send: Send, asked: Asked, account: Account
    ) -> None:
        """Answer a device of ThingsBoard that asks."""
        client = self._client(scope, _headers(scope))
        found = await self._found(receive, asked, account, client)
        if isinstance(found, Reply):
            self._outcomes["asked" if found.status in (200, 408) else "refused"] += 1
            await _response(found, RETRY_S)(scope, receive, send)
            return
        self._outcomes["asked"] += 1
        try:
            await found.send(send)
        except (TimeoutError, OSError) as error:  # what is missing is noticed by its length
            log.warning(
                "%s: a file was not sent to its end: %s",
                asked.payer,
                str(error) or "not taken in time",
                extra={"event": "bridge.http_file", "device": asked.payer},
            )

    async def _found(
        self, receive: Receive, asked: Asked, account: Account, client: str
    ) -> Reply | Sending:
        """The answer. It may take a minute, and the body counts until then."""
        chunks: list[bytes] = []
        try:
            refused = await self._read(receive, client, chunks, QUESTION_BYTES_MAX)
            if refused is None and self._questions is None:
                refused = Outcome(404, detail="nobody here answers devices of ThingsBoard")
            if refused is not None or self._questions is None:
                assert refused is not None, "it says why"
                return asked.reply(refused)
            body = b"".join(chunks)
            account.pay(len(body), 0.0)
            return await self._questions.answer(asked.head, body, account, receive)
        finally:
            self._release(client, chunks)

    def _release(self, client: str, chunks: Sequence[bytes]) -> None:
        """These bytes are held no more."""
        self._held[client] -= sum(map(len, chunks))
        if self._held[client] <= 0:
            del self._held[client]

    def _client(self, scope: Scope, headers: Mapping[str, str]) -> str:
        peer = scope.get("client")
        forwarded = headers.get("x-forwarded-for")
        return self._clients.of(peer[0] if peer else None, [forwarded] if forwarded else ())

    async def _taken(
        self, receive: Receive, asked: Asked, account: Account, client: str
    ) -> tuple[Outcome, float]:
        """What became of a request, and after how many seconds it may come again."""
        chunks: list[bytes] = []
        try:
            refused = await self._read(receive, client, chunks)
            if refused is not None:
                return refused, RETRY_S
            return await self._of_body(receive, asked, b"".join(chunks), account)
        finally:
            self._release(client, chunks)

    async def _read(
        self, receive: Receive, client: str, chunks: list[bytes], most: int | None = None
    ) -> Outcome | None:
        """Read the body; what it holds is counted as long as it is in `chunks`."""
        size, most = 0, self._body_bytes_max if most is None else most
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return Outcome(400, detail="ended early")
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > most:
                return Outcome(413, detail=f"a body of more than {most} bytes")
            total, held = self._held.total() + len(chunk), self._held[client] + len(chunk)
            if (why := self._bodies.refusal(total=total, held=held)) is not None:
                return Outcome(503, detail=why)
            self._held[client] += len(chunk)
            chunks.append(chunk)
            if not message.get("more_body", False):
                return None

    async def _of_body(
        self, receive: Receive, asked: Asked, body: bytes, account: Account
    ) -> tuple[Outcome, float]:
        sender = _Sender(self._clock)
        leaving = asyncio.ensure_future(sender.follow(receive))
        given: Given | None = None
        try:
            async with asyncio.timeout(TAKE_S):
                given = self._unsettled.pop(asked, body, self._clock.monotonic_s())
                if given is None:
                    found = await self._given(asked, body, account, sender)
                    if not isinstance(found, Given):
                        return found
                    given = found
                else:
                    account.pay(len(body), 0.0)
                await self._settled(given, sender, asked, body)
        except TimeoutError:
            if given is not None and not sender.gave_up.is_set():
                self._unsettled.keep(asked, body, given, self._clock.monotonic_s())
            return Outcome(503, detail=NOT_NOW), RETRY_S
        finally:
            leaving.cancel()
        whole, readings = given.whole, given.readings
        status = 422 if readings and whole.refused >= readings else 200
        taken = max(readings - whole.refused, 0)
        is_heard = asked.form is Form.THINGSBOARD and thingsboard_kind(asked.head) == "attributes"
        if status == 200 and is_heard and self._questions is not None:
            said = await self._said(self._questions, asked.head, body, account)
            self._questions.heard(asked.head, said)
        return Outcome(status, taken, whole.refused, whole.detail), 0

    async def _settled(self, given: Given, sender: _Sender, asked: Asked, body: bytes) -> None:
        """Wait until Kafka has it; who gives up meanwhile will send it again."""
        settled = asyncio.ensure_future(given.settled.wait())
        left = asyncio.ensure_future(sender.gave_up.wait())
        try:
            await asyncio.wait({settled, left}, return_when=asyncio.FIRST_COMPLETED)
            if left.done():
                now_s = self._clock.monotonic_s()
                self._unsettled.keep(asked, body, given, now_s, for_s=GAVE_UP_S)
            await settled
        finally:
            settled.cancel()
            left.cancel()

    async def _given(
        self, asked: Asked, body: bytes, account: Account, sender: _Sender
    ) -> Given | tuple[Outcome, float]:
        """Give the readings of a request to Kafka's client, or say why not."""
        while self._bridge.is_full:
            await self._clock.sleep(ROOM_S)
            if sender.gave_up.is_set():
                return Outcome(503, detail=NOT_NOW), RETRY_S
        parts = await self._parts(asked, body, account)
        if parts is None:
            wait_s = account.wait_s(self._clock.monotonic_s())
            return _too_much(asked.payer, wait_s), wait_s
        late = self._too_much_of_one(parts)
        if late is not None:
            return late
        if asked.is_named:  # what is refused owes no more
            account.pay_for(len(parts), len(body))
        settled = asyncio.Event()
        whole = self._bridge.take(parts, asked.payer, settled.set, is_named=asked.is_named)
        return Given(readings_in(parts), whole, settled)

    async def _said(
        self, questions: Questions, head: Head, body: bytes, account: Account
    ) -> Mapping[str, Any]:
        """The attributes in a body, which was right before."""
        coding, most = head.headers.get("content-encoding", ""), self._body_bytes_max
        if _is_short(body, coding):
            return questions.said(body)
        # No turn of `_readers`: its readings are in Kafka, and its client waits no longer than 5 s.
        said, busy_s = await asyncio.to_thread(_read_attributes, questions, body, coding, most)
        account.pay(0, busy_s)
        return said

    def _too_much_of_one(self, parts: Sequence[Part]) -> tuple[Outcome, float] | None:
        """All or nothing: a request is let in where each device in it may send."""
        for device in {device_in(one.packet.topic) for one in parts}:
            wait_s = self._bridge.wait_s(device)
            if wait_s > 0:
                return _too_much(device, wait_s), wait_s
        return None

    async def _parts(self, asked: Asked, body: bytes, account: Account) -> Sequence[Part] | None:
        """None: its device used up its share while this waited for its turn."""
        now_ms = self._clock.now_ms()
        if _is_short(body, asked.head.headers.get("content-encoding", "")):
            return self._requests.parts(asked, body, now_ms)
        await self._readers.acquire()
        if account.wait_s(self._clock.monotonic_s()) > 0:
            self._readers.release()
            return None
        reading = asyncio.ensure_future(
            asyncio.to_thread(_timed, self._requests, asked, body, now_ms)
        )
        reading.add_done_callback(partial(self._was_read, account, len(body)))
        parts, _ = await asyncio.shield(reading)  # no thread ends where nobody waits any more
        return parts

    def _was_read(
        self, account: Account, size: int, reading: asyncio.Future[tuple[Sequence[Part], float]]
    ) -> None:
        """A body was read, whether its request still waits for it or not: it costs the same."""
        self._readers.release()
        if not reading.cancelled() and reading.exception() is None:
            account.pay(size, reading.result()[1])


class _Sender:
    """Who sent a request, and waits for its answer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_s = clock.monotonic_s()
        self.gave_up = asyncio.Event()
        """Did it wait for a while, and end the connection then? Who ends it at once never wanted an
        answer, and what it sends next is another reading."""

    async def follow(self, receive: Receive) -> None:
        """Wait until it ends the connection."""
        while (await receive())["type"] != "http.disconnect":
            pass
        if self._clock.monotonic_s() - self._since_s >= PATIENCE_S:
            self.gave_up.set()


def _timed(
    requests: Requests, asked: Asked, body: bytes, now_ms: int
) -> tuple[Sequence[Part], float]:
    """The parts, and the seconds of processor time that they took."""
    began_s = time.thread_time()
    parts = requests.parts(asked, body, now_ms)
    return parts, time.thread_time() - began_s


def _is_short(body: bytes, coding: str) -> bool:
    """May it be read by the loop? What is packed may unfold to any size."""
    return len(body) <= ASIDE_BYTES and not coding


def _read_attributes(
    questions: Questions, body: bytes, coding: str, most: int
) -> tuple[Mapping[str, Any], float]:
    """The attributes, and the seconds of processor time that they took."""
    began_s = time.thread_time()
    said = questions.said(unpacked(body, coding, most) if coding else body)
    return said, time.thread_time() - began_s


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _head(scope: Scope, headers: Mapping[str, str]) -> Head:
    path = scope["raw_path"].decode("latin-1")
    query = scope["query_string"].decode("latin-1")
    return Head.of(scope["method"], f"{path}?{query}" if query else path, headers)


def _too_much(device: str, wait_s: float) -> Outcome:
    return Outcome(429, detail=too_much(device, wait_s).later.detail)


def _word(outcome: Outcome) -> str:
    """How a request is counted."""
    if outcome.status == 200:
        return "partial" if outcome.refused else "taken"
    return {429: "quota", 503: "unavailable"}.get(outcome.status, "refused")


def _response(answer: Reply, retry_s: int = 0) -> Response:
    headers = {"Retry-After": str(retry_s)} if retry_s and answer.status in (429, 503) else {}
    if answer.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    kind = answer.content_type if answer.body else None
    return Response(answer.body, answer.status, headers, kind)
