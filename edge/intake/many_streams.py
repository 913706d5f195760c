"""The intake of a source whose maps give readings of several streams.

Each stream has names, types and units of its own, as if it had a source of its own; the counts are
the source's. An object says its stream under STREAM, and so does its reading until it is in the
log, where what one message brought becomes durable together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from edgewake.edge.intake.field_book import FieldBook
from edgewake.edge.intake.intake import Intake
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.things.streams import STREAM
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.names import is_reserved, is_stream

STREAMS_MAX: Final = 32
"""Streams of one source beside its own: as many as a bridge learns from one device. Topics may name
any number; readings of more are refused, counted, and said by a gap of the source's own stream."""


class ManyStreams(Intake):
    """One source's way into its streams."""

    def __init__(
        self,
        *args: Any,
        book_of: Callable[[str], FieldBook],
        book_prefix: str,
        taken: Collection[str] = (),
        **keys: Any,
    ) -> None:
        """Like an Intake. `book_of`: a stream → what is known of its fields.

        `book_prefix`: stands before a stream where the log keeps its book. `taken`: streams that
        something else of this agent makes.
        """
        super().__init__(*args, **keys)
        self._book_of = book_of
        self._book_prefix = book_prefix
        self._taken_names = frozenset(taken)
        self._streams: dict[str, Intake] = {}

    def reading(self, item: Any) -> Reading:
        if not isinstance(item, dict) or STREAM not in item:
            return super().reading(item)
        stream = item[STREAM]
        body = {name: value for name, value in item.items() if name != STREAM}
        t, fields = self._of(stream).reading(body)
        return t, {**fields, STREAM: stream}

    def note_words(self, words: Mapping[str, Mapping[str, str]], stream: str = "") -> None:
        try:
            of = self._of(stream) if stream else None
        except Rejected:
            return  # its readings say so
        if of is None:
            super().note_words(words)
        else:
            of.note_words(words)

    def counts(self) -> dict[str, Any]:
        found = super().counts()
        for stream, one in sorted(self._streams.items()):
            names = one.counts()["names"]
            found["names"] |= {f"{stream}.{name}": path for name, path in names.items()}
        return found

    def _of(self, stream: object) -> Intake:
        """Raises Rejected."""
        if not isinstance(stream, str) or not is_stream(stream):
            # Whoever sends JSON can write the key that says it.
            raise Rejected(RejectReason.NAME, f"{stream!r} is not a name of a stream")
        known = self._streams.get(stream)
        if known is not None:
            return known
        if is_reserved(stream) or stream in self._taken_names:
            raise Rejected(
                RejectReason.NAME,
                f"a map gives the stream {stream!r}, which is not a source's: expected another one",
            )
        if len(self._streams) >= STREAMS_MAX:
            raise Rejected(
                RejectReason.QUOTA,
                f"{stream!r} is one more stream than the {STREAMS_MAX} that one source may have "
                "beside its own",
            )
        made = Intake(
            self.name,
            self._sink,
            self.policy,
            self._clock,
            time=self._time,
            book=self._book_of(stream),
            book_name=self._book_prefix + stream,
        )
        made.refused, made.remarks = self.refused, self.remarks
        self._streams[stream] = made
        return made

    def _keep_book(self) -> None:
        super()._keep_book()
        for one in self._streams.values():
            one._keep_book()
