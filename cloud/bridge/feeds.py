"""Feeds of devices: a question comes by MQTT, an access server is asked, and a chunk goes down.

Keeps nothing but who is waiting.

The access servers do what is hard: cursors that last, filters, gaps, rights, many readers at one
place. A question that is lost with a bridge is asked again by the device. Which streams devices may
follow is configured; none, where nothing is said. Where access servers ask for a key, each device
has rights of its own there (`[[rights.devices]]`), and the bridge says for which one it asks.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from edgewake.cloud.bridge.sse_chunk import RETRY_S, Gathering
from edgewake.protocol.config import Config
from edgewake.protocol.downlink.downlink import FEED_WAIT_S
from edgewake.protocol.downlink.feed import (
    DEVICE_HEADER,
    FEEDS_MAX,
    FeedAsk,
    FeedChunk,
    decode,
)
from edgewake.protocol.errors import Rejected

if TYPE_CHECKING:
    import httpx

log = logging.getLogger("edgewake.bridge")

LINGER_S: Final = 0.02
"""Seconds that a chunk with something in it waits for more: what comes together goes together."""
CONNECT_S: Final = 5.0
REFUSED_RETRY_S: Final = 300.0
"""A question that is wrong, or not allowed, is wrong for a while."""
LATER: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.TOO_MANY_REQUESTS})
"""Refusals that time may mend by itself: a stream is there when its first reading was sent, and
what follows it may be started before."""
KEY_REFUSED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
"""Refusals of the bridge's key: its log says why, a device is not told."""
WAITING_MAX: Final = 1000
"""Questions of all devices that wait for their chunk, some 100 KB each. One more takes the place of
the newest of the device that has most of them; of a device that has as many itself it is not
answered. What is not answered is asked again by its device."""
ALL: Final = "*"


class FeedConfig(Config):
    """What devices may follow through this bridge."""

    access_urls: tuple[str, ...] = ()
    """Addresses of access servers, e.g. ["http://127.0.0.1:8700"]; one of them is asked for each
    chunk."""
    streams: tuple[str, ...] = ()
    """Streams and queries that devices may follow at all; "*" for all. None by default: what a
    device sends is nobody else's affair."""
    key_file: Path | None = None
    """A file with a key or token that the access servers know, where they ask for one; read for
    each question. Its role needs the action `feed`."""
    own_rights: bool = True
    """Each device follows what `[[rights.devices]]` of the access servers gives it. false: all of
    them, alike, what the holder of `key_file` may read; the log says so at each start."""


Send: TypeAlias = Callable[[str, FeedChunk], object]
"""Sends a chunk to a device; it may be lost."""


class Feeds:
    """All that is asked through one bridge."""

    def __init__(self, config: FeedConfig, send: Send, rng: random.Random) -> None:
        self._config = config
        self._send = send
        self._rng = rng
        self._tasks: dict[str, dict[str, asyncio.Task[None]]] = {}
        """By device and feed, at most FEEDS_MAX of a device and WAITING_MAX in all; the newest
        stand last."""
        self._client: httpx.AsyncClient | None = None
        self.left_out = 0
        if config.key_file is not None and not config.own_rights:
            log.warning(
                "feed.own_rights = false: each device may follow all that the holder of "
                "feed.key_file may read",
                extra={"event": "feed.alike"},
            )

    def on_ask(self, device: str, payload: bytes) -> None:
        """A question. The newer one of the same feed counts."""
        ask = self._read_ask(device, payload)
        if ask is None:
            return
        self._give_up(device, ask.feed)
        if not self._has_room(device):
            self.left_out += 1
            return
        task = asyncio.get_running_loop().create_task(self._answer(device, ask))
        self._tasks.setdefault(device, {})[ask.feed] = task
        task.add_done_callback(lambda done: self._ended(device, ask.feed, done))

    def put_off(self, device: str, payload: bytes, wait_s: float) -> None:
        """Tell a device that asks more than its share allows when it may ask again."""
        self.left_out += 1
        ask = self._read_ask(device, payload)
        if ask is not None:
            self._send(device, _error(ask, "the share of this device is used up", wait_s))

    def _read_ask(self, device: str, payload: bytes) -> FeedAsk | None:
        """None where it cannot be read."""
        try:
            return decode(FeedAsk, payload)
        except Rejected as error:
            self.left_out += 1
            log.debug(
                "a question for a feed: %s", error, extra={"event": "feed.wrong", "device": device}
            )
            return None

    def _has_room(self, device: str) -> bool:
        """Is there room for one more of this device, or is some made for it?"""
        held = len(self._tasks.get(device, ()))
        if held >= FEEDS_MAX:
            return False
        if sum(map(len, self._tasks.values())) < WAITING_MAX:
            return True
        greedy, of_greedy = max(self._tasks.items(), key=lambda found: len(found[1]))
        if len(of_greedy) <= held + 1:
            return False
        self.left_out += 1
        self._give_up(greedy, next(reversed(of_greedy)))
        return True

    def _give_up(self, device: str, feed: str) -> None:
        """Answer a question no more, if it waits."""
        of_device = self._tasks.get(device, {})
        task = of_device.pop(feed, None)
        if task is not None:
            task.cancel()
        if not of_device:
            self._tasks.pop(device, None)

    def _ended(self, device: str, feed: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(device, {}).get(feed) is task:
            self._give_up(device, feed)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a feed failed", exc_info=error, extra={"event": "feed.failed"})

    async def close(self) -> None:
        """Answer nobody any more."""
        waiting = [task for of_device in self._tasks.values() for task in of_device.values()]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    async def _answer(self, device: str, ask: FeedAsk) -> None:
        refused = self._refusal(ask)
        if refused is None:
            chunk = await self._gathered(device, ask)
        else:
            chunk = _error(ask, refused, REFUSED_RETRY_S)
        self._send(device, chunk)

    def _refusal(self, ask: FeedAsk) -> str | None:
        if not self._config.access_urls:
            return "this installation feeds no devices"
        allowed = self._config.streams
        denied = [] if ALL in allowed else sorted(set(ask.streams) - set(allowed))
        return f"not for devices: {', '.join(denied)}"[:1000] if denied else None

    async def _gathered(self, device: str, ask: FeedAsk) -> FeedChunk:
        import httpx

        self._client = self._client or httpx.AsyncClient(
            timeout=httpx.Timeout(CONNECT_S, read=FEED_WAIT_S + CONNECT_S, pool=None),
            limits=httpx.Limits(),  # none of its own: WAITING_MAX bounds the connections
        )
        # Any of them, as a cursor is good at each: so the questions are spread.
        url = self._rng.choice(self._config.access_urls).rstrip("/") + "/v1/events"
        words = {
            "stream": list(ask.streams),
            "where": ask.where,
            "select": ask.select,
            "from": ask.begin,
        }
        headers = {"Accept": "text/event-stream"} | (
            {"Last-Event-ID": ask.after} if ask.after else {}
        )
        try:
            key = self._key()
        except OSError as error:
            log.error("feed.key_file: %s", error, extra={"event": "feed.key"})
            return _error(ask, "this installation's own key cannot be read", RETRY_S)
        if key:
            headers["Authorization"] = f"Bearer {key}"
            if self._config.own_rights:
                headers[DEVICE_HEADER] = device
        try:
            request = self._client.build_request(
                "GET",
                url,
                params={name: word for name, word in words.items() if word is not None},
                headers=headers,
            )
            answer = await self._client.send(request, stream=True)
            try:
                return await self._read(ask, answer)
            finally:
                await answer.aclose()
        except httpx.HTTPError as error:
            return _error(ask, f"no access server: {error or type(error).__name__}", RETRY_S)

    def _key(self) -> str:
        """Raises OSError."""
        path = self._config.key_file
        return "" if path is None else path.read_text("ascii", "ignore").strip()

    async def _read(self, ask: FeedAsk, answer: httpx.Response) -> FeedChunk:
        if answer.status_code != 200:
            detail = _detail(await answer.aread())
            if answer.status_code in KEY_REFUSED:
                log.error("feed.key_file: %s", detail, extra={"event": "feed.key"})
                detail = "this installation's own key is refused"
            is_wrong = 400 <= answer.status_code < 500 and answer.status_code not in LATER
            return _error(
                ask,
                f"HTTP {answer.status_code}: {detail}",
                REFUSED_RETRY_S if is_wrong else RETRY_S,
            )
        gathering = Gathering(ask)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(FEED_WAIT_S) as patience:
                async for line in answer.aiter_lines():
                    before = gathering.has_something
                    gathering.line(line)
                    if gathering.is_full:
                        break
                    if gathering.has_something and not before:
                        patience.reschedule(loop.time() + LINGER_S)
        except TimeoutError:
            pass
        return gathering.chunk()


def _error(ask: FeedAsk, why: str, retry_s: float) -> FeedChunk:
    return FeedChunk(feed=ask.feed, after=ask.after, error=why[:1000], retry_s=retry_s)


def _detail(body: bytes) -> str:
    import orjson

    try:
        found: dict[str, Any] = orjson.loads(body)
        return str(found["detail"])[:500]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace")
