"""ThingsBoard's HTTP device API, but for readings: attributes, commands, firmware.

    GET  /api/v1/TOKEN/attributes?clientKeys=a,b&sharedKeys=c    attributes; all where none is named
    GET  …/attributes/updates?timeout=MS     waits for shared attributes that are set
    GET  …/rpc?timeout=MS                    waits for a command
    POST …/rpc/NUMBER                        its answer
    POST …/rpc                               asks its server for something
    POST …/claim                             is taken, and means nothing here
    GET  …/firmware?title=&version=&size=&chunk=, …/software     a file, or a piece of it

Who waits in vain is answered 408, and asks again; 429 and 503 say that there is no room for it now,
or that what is offered is not known yet. A command is given to a device once, as by MQTT
with QoS 0, and its number is the same at each bridge.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import orjson
from starlette.types import Receive, Send

from edgewake.cloud.bridge.admission.allowance import Account
from edgewake.cloud.bridge.admission.mapped import Part
from edgewake.cloud.bridge.outbox import Outbox
from edgewake.cloud.bridge.thingsboard import words
from edgewake.cloud.bridge.thingsboard.firmware import Firmware, Image, span
from edgewake.cloud.bridge.thingsboard.memory import Memory
from edgewake.cloud.bridge.thingsboard.pending import Pending
from edgewake.cloud.bridge.web.door import NOT_NOW, ROOM_S, TAKE_S, Taker
from edgewake.protocol.clock import Clock
from edgewake.protocol.downlink.down_message import Command
from edgewake.protocol.downlink.down_row import DownRow
from edgewake.protocol.downlink.downlink import AnswerState
from edgewake.protocol.maps.http_forms import (
    Form,
    Head,
    Reply,
    is_question,
    thingsboard_kind,
    thingsboard_name,
)
from edgewake.protocol.maps.http_identity import refusal
from edgewake.protocol.maps.names import device_name

log = logging.getLogger("edgewake.bridge.thingsboard")

WAIT_S: Final = 50.0
"""Seconds that a device waits at most, whatever it asks for: proxies have patience for 60, and a
token that is taken back ends within a minute."""
WAITING_MAX: Final = 4
"""Requests of a device that wait for the same; one more ends the oldest."""
PIECE_BYTES: Final = 64 * 1024
"""Bytes of a file that are in memory at once; of what is longer a device is sent one at a time."""
FILE_S: Final = 300.0
"""Seconds for a client to take a file."""
_UPDATES: Final = "attributes/updates"
_FIRMWARE: Final[Mapping[str, str]] = {"firmware": "fw", "software": "sw"}
_OF_FILES: Final = frozenset({"attributes", _UPDATES, *_FIRMWARE})
"""Questions whose answer may tell of a file: a version that is not known is refused for good."""


def _nothing() -> None:
    """Nobody waits for it."""


def device_of(head: Head, prefix: str) -> str:
    """The device that a request is of. `prefix`: of names where nobody shows a known token."""
    return head.device or device_name(thingsboard_name(head), prefix)


class DeviceApi:
    """What the devices of one bridge ask for."""

    def __init__(
        self,
        bridge: Taker,
        outbox: Outbox,
        memory: Memory,
        firmware: Firmware,
        looked: asyncio.Event,
        clock: Clock,
        prefix: str,
    ) -> None:
        """`looked`: is set when the files of `firmware` are known."""
        self._bridge = bridge
        self._outbox = outbox
        self._memory = memory
        self._firmware = firmware
        self._looked = looked
        self._clock = clock
        self._prefix = prefix
        self._waiting: dict[tuple[str, bool], list[asyncio.Future[DownRow | None]]] = {}
        """By device, and whether for attributes; the oldest first."""
        self._handed: set[str] = set()
        """Ids of commands that were given to a request which has not said so yet."""
        self._loading: set[str] = set()
        """Devices that are sent a file of more than one piece."""
        outbox.ways.append(self.reach)

    # Commands

    def reach(self, row: DownRow) -> bool:
        """Give a command to a device that waits for one; False: it does not wait."""
        asked = row.message
        if not isinstance(asked, Command) or self._has(row, asked):
            return False
        is_set = asked.name == words.SET_ATTRIBUTES
        for waiting in self._waiting.get((row.device, is_set), ()):
            if not waiting.done():
                self._handed.add(asked.id)
                waiting.set_result(row)
                return True
        return False

    def _has(self, row: DownRow, asked: Command) -> bool:
        return asked.id in self._memory.of(row.device).told or asked.id in self._handed

    def _open(self, device: str, *, is_set: bool) -> Iterable[tuple[DownRow, Command]]:
        """What waits for a device and was not given to it yet, in order."""
        now_ms = self._clock.now_ms()
        for row in self._outbox.waiting(device):
            asked = row.message
            if row.device != device or not isinstance(asked, Command) or self._has(row, asked):
                continue
            if row.waits_at(now_ms) and (asked.name == words.SET_ATTRIBUTES) is is_set:
                yield row, asked

    def _tell(self, row: DownRow, asked: Command) -> None:
        """The device has it."""
        waiting = (one.message.id for one in self._outbox.waiting(row.device))
        self._memory.tell(row.device, row.device, asked.id, waiting)

    def _set(self, row: DownRow, asked: Command) -> Mapping[str, Any] | None:
        """Set the attributes of a command, which is done by it; None: it is refused."""
        pending = Pending.of(row, asked)
        try:
            values = self._firmware.described(words.shared_of(asked))
        except ValueError as error:
            self._answer(pending, AnswerState.REFUSED, str(error))
            return None
        finally:
            self._tell(row, asked)
        self._keep(row.device, "shared", values)
        self._answer(pending, AnswerState.DONE)
        return values

    def _answer(self, pending: Pending, state: AnswerState, detail: str = "") -> None:
        part = pending.answered(state, "", detail, self._clock.now_ms())
        self._bridge.take([part], pending.device, _nothing, is_named=False)

    def _keep(self, device: str, kind: str, values: Mapping[str, Any]) -> None:
        if why := self._memory.keep(device, device, kind, values):
            self._note(device, why)

    def _note(self, device: str, why: str) -> None:
        extra = {"event": "thingsboard.passed", "device": device}
        log.info("%s: %s", device, why, extra=extra)

    # Requests

    def said(self, body: bytes) -> Mapping[str, Any]:
        """Read the attributes in a body, which is unpacked. Pure, and not of one thread."""
        return words.object_of(body)

    def heard(self, head: Head, said: Mapping[str, Any]) -> None:
        """Remember attributes that a device has sent, for its questions."""
        if thingsboard_kind(head) == "attributes" and not is_question(head):
            self._keep(device_of(head, self._prefix), "client", said)

    async def answer(
        self, head: Head, body: bytes, account: Account, receive: Receive
    ) -> Reply | Download:
        """Answer a question. `account`: who pays for a long answer."""
        device, kind = device_of(head, self._prefix), thingsboard_kind(head)
        expected = _methods(kind)
        if head.method not in expected:
            return _refused(head, 405, f"expected {' or '.join(expected)}")
        if kind in _OF_FILES and not self._looked.is_set():
            return _refused(head, 503, "the files of firmware_dir are still being read: ask again")
        if kind in _FIRMWARE:
            return self._file(head, device, _FIRMWARE[kind], account)
        if kind == "claim":
            return Reply(200)
        if kind == "attributes":
            known = await self._attributes(head, device)
            if known is None:
                return _refused(head, 503, NOT_NOW)
            said = known
        elif kind == "rpc" and head.method == "POST":
            return _called(body)
        elif kind.startswith("rpc/"):
            return await self._answered(head, device, int(kind.removeprefix("rpc/")), body)
        else:
            within_s = _within_s(head)
            if within_s is None:
                return _refused(head, 400, "timeout: expected milliseconds, a whole number")
            found = await self._next(device, within_s, receive, is_set=kind == _UPDATES)
            if found is None:
                return Reply(408)
            said = found
        answer = orjson.dumps(said)
        account.pay_for(0, len(answer))
        return Reply(200, answer)

    async def _attributes(self, head: Head, device: str) -> Mapping[str, Any] | None:
        """The attributes that are asked for, and those that wait to be set are set by it.

        None: the bridge has no room for that.
        """
        client, shared = _keys(head, "clientKeys"), _keys(head, "sharedKeys")
        is_all = not client and not shared
        for row, asked in [*self._open(device, is_set=True)]:
            if not is_all and shared.isdisjoint(words.shared_of(asked)):
                continue
            if not await self._has_room():
                return None
            if not self._has(row, asked):  # another request may have had it meanwhile
                self._set(row, asked)
        kept = self._memory.of(device)
        found = {
            "client": {name: one for name, one in kept.client.items() if is_all or name in client},
            "shared": {name: one for name, one in kept.shared.items() if is_all or name in shared},
        }
        return {name: values for name, values in found.items() if values}

    async def _answered(self, head: Head, device: str, number: int, body: bytes) -> Reply:
        """A device has answered a command: 200 once Kafka has it."""
        for row in self._outbox.waiting(device):
            asked = row.message
            is_asked = isinstance(asked, Command) and words.number_of(asked.id) == number
            if not is_asked or row.device != device:
                continue
            assert isinstance(asked, Command), "it has a number"
            output = body.decode("utf-8", "replace")
            now_ms = self._clock.now_ms()
            part = Pending.of(row, asked).answered(AnswerState.DONE, output, "", now_ms)
            if not await self._taken(part, device):
                return _refused(head, 503, NOT_NOW)
            return Reply(200)
        self._note(device, f"an answer to number {number}, which nobody waits for")
        return Reply(200)

    async def _taken(self, part: Part, device: str) -> bool:
        settled = asyncio.Event()
        try:
            async with asyncio.timeout(TAKE_S):
                await self._room()
                self._bridge.take([part], device, settled.set, is_named=False)
                await settled.wait()
        except TimeoutError:
            return False
        return True

    async def _room(self) -> None:
        while self._bridge.is_full:
            await self._clock.sleep(ROOM_S)

    async def _has_room(self) -> bool:
        """Is there room for an answer, at least after a while?"""
        try:
            async with asyncio.timeout(TAKE_S):
                await self._room()
        except TimeoutError:
            return False
        return True

    async def _next(
        self, device: str, within_s: float, receive: Receive, *, is_set: bool
    ) -> Mapping[str, Any] | None:
        """Wait for a command, or for attributes; None: nothing came."""
        until_s = self._clock.monotonic_s() + within_s
        while True:
            found = next(iter(self._open(device, is_set=is_set)), None)
            row = None if found is None else found[0]
            if row is None:
                left_s = until_s - self._clock.monotonic_s()
                row = await self._wait(device, left_s, receive, is_set=is_set)
            if row is None:
                return None
            asked = row.message
            assert isinstance(asked, Command), "only these are given"
            if not is_set:
                self._tell(row, asked)
                return words.called(asked)
            if not await self._has_room():
                return None
            if self._has(row, asked):  # another request had it meanwhile
                continue
            values = self._set(row, asked)
            if values is not None:
                return values

    async def _wait(
        self, device: str, within_s: float, receive: Receive, *, is_set: bool
    ) -> DownRow | None:
        """Wait in line; what is given to who has left waits for the next one."""
        line = self._waiting.setdefault((device, is_set), [])
        if len(line) >= WAITING_MAX and not line[0].done():
            line[0].set_result(None)
        waiting: asyncio.Future[DownRow | None] = asyncio.get_running_loop().create_future()
        line.append(waiting)
        leaving = asyncio.create_task(_left(receive))
        try:
            either: set[asyncio.Future[Any]] = {waiting, leaving}
            timeout = max(within_s, 0.0)
            await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            line.remove(waiting)
            if not line:
                del self._waiting[device, is_set]
            row = waiting.result() if waiting.done() else None
            if row is not None:
                self._handed.discard(row.message.id)
        if row is not None and leaving.done():
            self.reach(row)
            return None
        return row

    def _file(self, head: Head, device: str, kind: str, account: Account) -> Reply | Download:
        shared = self._memory.of(device).shared
        named = tuple(head.query.get(word, "") for word in ("title", "version"))
        if named != tuple(str(shared.get(f"{kind}_{word}")) for word in ("title", "version")):
            why = f"{named!r}: its shared attributes {kind}_title and {kind}_version say otherwise"
            return _refused(head, 404, why)
        image = self._firmware.of(kind, shared)
        if image is None:
            return _refused(head, 404, f"firmware_dir has no {named[0]!r} {named[1]!r}")
        size, piece = (_whole(head.query.get(word, "0")) for word in ("size", "chunk"))
        if size is None or piece is None:
            return _refused(head, 400, "size and chunk: expected whole numbers")
        begin, count = span(image, size, piece)
        if count <= PIECE_BYTES:
            account.pay_for(0, count)
            return Download(image, begin, count, _nothing)
        if device in self._loading:
            why = "another file is being sent to this device: wait for its end, or ask for pieces"
            return _refused(head, 429, why)
        account.pay_for(0, count)
        self._loading.add(device)
        return Download(image, begin, count, lambda: self._loading.discard(device))


class Download:
    """A file, or a piece of it, that goes to a client."""

    def __init__(self, image: Image, begin: int, size: int, over: Callable[[], None]) -> None:
        """`over`: is called when it has ended, well or badly."""
        self.image = image
        self.begin = begin
        self.size = size
        self._over = over

    async def send(self, send: Send) -> None:
        """Send it piece by piece. Raises TimeoutError where the client does not take it."""
        try:
            await self._send(send)
        finally:
            self._over()

    async def _send(self, send: Send) -> None:
        name = self.image.path.name.encode("ascii", "replace").replace(b'"', b"_")
        headers = [
            (b"content-type", b"application/octet-stream"),
            (b"content-length", str(self.size).encode()),
            (b"content-disposition", b'attachment; filename="' + name + b'"'),
        ]
        async with asyncio.timeout(FILE_S):
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            at, end = self.begin, self.begin + self.size
            while at < end:
                some = await asyncio.to_thread(_read, self.image, at, min(PIECE_BYTES, end - at))
                at += len(some)
                await send({"type": "http.response.body", "body": some, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


def _read(image: Image, at: int, size: int) -> bytes:
    """Read bytes of a file. Raises OSError, also where it has become shorter."""
    with image.path.open("rb") as file:
        file.seek(at)
        found = file.read(size)
    if len(found) < size:
        raise OSError(f"{image.path}: it has become shorter while it was sent")
    return found


def _methods(kind: str) -> tuple[str, ...]:
    """The methods of requests of this kind."""
    if kind == "rpc":
        return ("GET", "POST")
    return ("POST",) if kind in ("claim", "telemetry") or kind.startswith("rpc/") else ("GET",)


def _called(body: bytes) -> Reply:
    """The answer to a device that asks its server for something."""
    method = str(words.object_of(body).get("method", ""))
    return Reply(200, words.replied(words.Asked(0, method)).payload)


def _keys(head: Head, name: str) -> frozenset[str]:
    return frozenset(one for one in head.query.get(name, "").split(",") if one)


def _whole(text: str) -> int | None:
    is_number = text.isascii() and text.isdigit() and len(text) <= 10
    return int(text) if is_number else None


def _within_s(head: Head) -> float | None:
    """The seconds that a request waits; None: it says no number."""
    asked_ms = _whole(head.query.get("timeout", "0"))
    if asked_ms is None:
        return None
    return min(asked_ms / 1000 or WAIT_S, WAIT_S)


def _refused(head: Head, status: int, why: str) -> Reply:
    return refusal(Form.THINGSBOARD, head, status, why)


async def _left(receive: Receive) -> None:
    """Wait until the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
