"""What a plain device has taken and the cloud has not yet acknowledged. Pure: no socket, no clock.

Per lane (a device) messages leave in order, at most `lane_window` of them unacknowledged at once,
and all lanes together at most `window`. A message leaves the outbox by its end-to-end
acknowledgement and by nothing else; until then it is sent again, with the same bytes, after a lost
connection, after `resend_after_s` without an answer, or when the time of the answer `later` is
over. At the bound `capacity` the oldest message of the lane that was never sent is given up and
counted: a live sensor prefers what is new. A player of files asks `full` and waits instead.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final

RESEND_AFTER_S: Final = 5.0
"""A broker that restarts forgets what it had confirmed, and says so to nobody: only time tells."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message and the key by which its acknowledgement finds it."""

    key: int
    lane: str
    topic: str
    payload: bytes
    readings: int = 1
    content_type: str | None = None
    """None: one plain reading."""


class Outbox:
    """Messages on their way, by lane."""

    def __init__(
        self,
        *,
        window: int,
        lane_window: int,
        capacity: int,
        resend_after_s: float = RESEND_AFTER_S,
    ) -> None:
        self.window = window
        """Messages in flight at once."""
        self._lane_window = lane_window
        self._capacity = capacity
        self._resend_after_s = resend_after_s
        self._messages: dict[int, Message] = {}
        self._waiting: dict[str, deque[int]] = {}
        self._released: dict[str, int] = {}
        self._ready: deque[int] = deque()
        self._in_flight: OrderedDict[int, float] = OrderedDict()
        self._postponed: dict[int, float] = {}
        """When the cloud wants to see them again; they leave the window to others, but their lane
        waits."""
        self._last_key = 0
        self.given_up = 0
        """Messages given up at the bound."""
        self.resent = 0

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def full(self) -> bool:
        """Would one more cost an older one?"""
        return len(self._messages) >= self._capacity

    @property
    def readings(self) -> int:
        """In all messages that wait or are on their way."""
        return sum(message.readings for message in self._messages.values())

    def offer(
        self,
        lane: str,
        topic: str,
        payload: bytes,
        *,
        readings: int = 1,
        content_type: str | None = None,
    ) -> None:
        """Take a message."""
        waiting = self._waiting.setdefault(lane, deque())
        if self.full and not self._give_up_oldest(waiting):
            return
        self._last_key += 1
        self._messages[self._last_key] = Message(
            self._last_key, lane, topic, payload, readings, content_type
        )
        waiting.append(self._last_key)
        self._release(lane)

    def _give_up_oldest(self, waiting: deque[int]) -> bool:
        self.given_up += 1
        if not waiting:
            return False
        del self._messages[waiting.popleft()]
        return True

    def _release(self, lane: str) -> None:
        waiting = self._waiting[lane]
        if waiting and self._released.get(lane, 0) < self._lane_window:
            self._released[lane] = self._released.get(lane, 0) + 1
            self._ready.append(waiting.popleft())

    def next_message(self, now_s: float) -> Message | None:
        """The next message to send, None where nothing is due or the window is full.

        It counts as sent from now on.
        """
        if (postponed := self._postponed_until(now_s)) is not None:
            key = postponed
            del self._postponed[key]
            self.resent += 1
        elif (
            self._in_flight and now_s - next(iter(self._in_flight.values())) >= self._resend_after_s
        ):
            key, _ = self._in_flight.popitem(last=False)
            self.resent += 1
        elif self._ready and len(self._in_flight) < self.window:
            key = self._ready.popleft()
        else:
            return None
        self._in_flight[key] = now_s
        return self._messages[key]

    def _postponed_until(self, now_s: float) -> int | None:
        """A message whose wait is over."""
        return next((key for key, until_s in self._postponed.items() if until_s <= now_s), None)

    def next_due_s(self) -> float | None:
        """When the next message in flight has to be sent again; None while nothing is in flight."""
        times = list(self._postponed.values())
        if self._in_flight:
            times.append(next(iter(self._in_flight.values())) + self._resend_after_s)
        return min(times, default=None)

    def postpone(self, key: int, until_s: float) -> None:
        """The cloud does not accept a message before `until_s`: it stays, and its lane waits."""
        if self._in_flight.pop(key, None) is not None:
            self._postponed[key] = until_s

    def settle(self, key: int) -> Message | None:
        """The acknowledgement of a message came: it is the cloud's now.

        None where it was settled before, or was never sent.
        """
        message = self._messages.get(key)
        if message is None:
            return None
        waiting = self._waiting[message.lane]
        if waiting and key >= waiting[0]:  # in the order of their keys
            return None
        del self._messages[key]
        if self._in_flight.pop(key, None) is None and self._postponed.pop(key, None) is None:
            self._ready.remove(key)
        self._released[message.lane] -= 1
        self._release(message.lane)
        return message

    def disconnected(self) -> None:
        """The connection is gone: what was in flight goes first on the next one, in its order."""
        self._ready.extendleft(sorted(self._in_flight, reverse=True))
        self.resent += len(self._in_flight)
        self._in_flight.clear()
