"""Bytes of `text/event-stream` become events, exactly as WHATWG HTML 9.2.6 says.

Pure: fed in any pieces, it opens nothing.

An event that the stream's end cuts in two is never delivered. A block with an id and no data moves
`last_event_id` and is not an event.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from edgewake.protocol.errors import RemoteError

EVENT_BYTES_MAX: Final = 2 * 1024 * 1024
"""Bytes of one event; our servers send at most 512 KB. Over it: SseError, since a stream without
line ends would eat the memory."""
RETRY_DIGITS_MAX: Final = 15
"""The most digits of a `retry` in ms; a longer number is ignored."""
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BOM: Final = b"\xef\xbb\xbf"


class SseError(RemoteError):
    """A stream that is not usable as an event stream."""


@dataclass(frozen=True, slots=True)
class Event:
    """A dispatched event.

    `id` is the last event id at its end: the cursor to resume from after it.
    """

    type: str
    data: str
    id: str


class Parser:
    """Feed it bytes; it returns events.

    `last_event_id` and `retry_ms` are the latest of the stream.
    """

    def __init__(self, last_event_id: str = "") -> None:
        self.last_event_id = last_event_id
        self.retry_ms: int | None = None
        self._id = last_event_id
        self._type = ""
        self._data: list[str] = []
        self._size = 0
        self._rest = bytearray()
        """The rest of the line that is not complete."""
        self._after_cr = False
        self._at_start = True

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes. Raises SseError."""
        lines = self._split(self._clean(data))
        if self._size + len(self._rest) > EVENT_BYTES_MAX:
            raise SseError(f"an event of more than {EVENT_BYTES_MAX} bytes")
        events = (self._line(line) for line in lines)
        return [event for event in events if event is not None]

    def _clean(self, data: bytes) -> bytes:
        """Drop the LF that belongs to the CR at the end of the piece before."""
        if self._after_cr and data:
            self._after_cr = False
            return data.removeprefix(b"\n")
        return data

    def _split(self, data: bytes) -> list[bytes]:
        """The lines that are complete now.

        Only new bytes are looked at: a long line may come in thousands of pieces.
        """
        if self._at_start:
            data = bytes(self._rest) + data
            self._rest.clear()
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._rest += data
                return []
            data, self._at_start = data.removeprefix(_BOM), False
        self._after_cr = self._after_cr or data.endswith(b"\r")
        first, *more = _LINE_END.split(data)
        self._rest += first
        if not more:
            return []
        lines = [bytes(self._rest), *more[:-1]]
        self._rest = bytearray(more[-1])
        return lines

    def _line(self, line: bytes) -> Event | None:
        if not line:
            return self._dispatch()
        name, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            # All that is kept: comments, which keep a connection alive for months, are not.
            self._size += len(line)
        elif name == "event":
            self._type = value
        elif name == "id" and "\0" not in value:
            self._id = value
        elif (
            name == "retry"
            and value.isascii()
            and value.isdigit()
            and len(value) <= RETRY_DIGITS_MAX
        ):
            self.retry_ms = int(value)
        return None

    def _dispatch(self) -> Event | None:
        self.last_event_id = self._id
        data, kind = self._data, self._type
        self._data, self._type, self._size = [], "", 0
        if not data:
            return None
        return Event(kind or "message", "\n".join(data), self.last_event_id)
