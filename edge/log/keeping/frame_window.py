"""Which streams form their frames next, within the window of what may be in flight.

No SQL: `LogFrames` forms a frame, this module says of which stream. One thread calls it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from edgewake.edge.log.keeping.draft import Draft
from edgewake.edge.log.keeping.frames import LogFrames
from edgewake.edge.log.keeping.lanes import RANK, Window
from edgewake.edge.log.keeping.work import FrameKey, Limits
from edgewake.edge.log.tables.streams import StreamState


class FrameWindow:
    """Fills the window with frames, in the order of lanes and with streams in turns.

    `paused` are streams that send nothing now, `filling` are streams whose next frame waits for
    more readings.
    """

    def __init__(self, limits: Limits, frames: LogFrames) -> None:
        self._limits = limits
        self._frames = frames
        self._next_stream = 0
        self._frame_bytes = limits.bytes_max
        self.epoch = 0
        """The log's epoch, which new frames belong to; the store sets it when it is open."""

    def has_room(self, draft: Draft, paused: frozenset[str], filling: frozenset[str]) -> bool:
        """Does a stream wait for a frame, and may it have one more in flight?"""
        window, in_flight = self._window(draft, paused), _epochs_in_flight(draft)
        formable = {
            name
            for name in _unframed(draft, paused | filling)
            if self._may_form(draft, draft.streams[name], in_flight)
        }
        return any(map(window.admits, formable | _unsent(draft, paused)))

    def admits_any(self, draft: Draft, streams: Sequence[str], paused: frozenset[str]) -> bool:
        """Whether one of these streams may have one more frame in flight."""
        window = self._window(draft, paused)
        return any(name not in paused and window.admits(name) for name in streams)

    def fill(
        self, draft: Draft, paused: frozenset[str], filling: frozenset[str], frame_bytes: int
    ) -> None:
        """Reload earlier frames, then form frames of up to `frame_bytes`.

        The more urgent lanes go first; in a lane live streams, then backlogs, in turns.
        """
        self._frame_bytes = frame_bytes
        window = self._window(draft, paused)
        self._reload_unsent(draft, window, paused)
        in_flight = _epochs_in_flight(draft)
        names = _unframed(draft, paused | filling)
        names = window.in_order(
            names[self._next_stream :] + names[: self._next_stream],
            is_behind=lambda name: self._is_behind(draft, name),
        )
        while names := [
            name
            for name in names
            if self._may_form(draft, draft.streams[name], in_flight) and window.admits(name)
        ]:
            rank = RANK[self._limits.lane(names[0])]
            for name in names:
                if RANK[self._limits.lane(name)] == rank and window.admits(name):
                    out = self._frames.form(
                        draft, draft.streams[name], self.epoch, self._frame_bytes
                    )
                    draft.frames.append(out)
                    in_flight[name] = out.key.epoch
                    window.add(name, len(out.payload))
        self._next_stream = (self._next_stream + 1) % max(1, len(draft.streams))

    def _window(self, draft: Draft, paused: frozenset[str]) -> Window:
        """The window with what is in flight. Paused streams do not count.

        They have at most their share in flight, because they form no more frames.
        """
        out = (
            (key.stream, size)
            for key, size in draft.outstanding.items()
            if key.stream not in paused
        )
        return Window(
            self._limits.window_frames, self._limits.window_bytes, out, lane=self._limits.lane
        )

    def _is_turn_of(self, stream: StreamState, in_flight: Mapping[str, int]) -> bool:
        """Are all frames of the epochs before the next one's acknowledged?

        The cloud remembers few epochs of a stream, and takes their frames in the order in which
        they come.
        """
        epoch = stream.next_epoch(self.epoch)
        return in_flight.get(stream.name, epoch) == epoch

    def _may_form(self, draft: Draft, stream: StreamState, in_flight: Mapping[str, int]) -> bool:
        """May the stream form a frame?

        Compressed, far more than the quota could be in flight; half of it is left for new readings.
        """
        fits = stream.name not in in_flight or draft.framed_bytes <= self._limits.quota_bytes // 2
        return fits and stream.framed < stream.last and self._is_turn_of(stream, in_flight)

    def _is_behind(self, draft: Draft, name: str) -> bool:
        """Whether more waits than one frame holds."""
        stream = draft.streams[name]
        return (
            stream.last - stream.framed > self._limits.readings_max
            or draft.waiting.get(name, 0) > self._frame_bytes
        )

    def _reload_unsent(self, draft: Draft, window: Window, paused: frozenset[str]) -> None:
        """Reload frames of an earlier life, each stream's in order, as far as the window allows."""
        waiting: deque[FrameKey] = deque()
        full = set(paused)
        for key in draft.unsent:
            if key.stream in full or not window.admits(key.stream):
                full.add(key.stream)
                waiting.append(key)
            else:
                self._frames.reload(draft, key)
                window.add(key.stream, draft.outstanding[key])
        draft.unsent = waiting


def has_waiting(draft: Draft, paused: frozenset[str]) -> bool:
    """Whether anything waits for room in the window."""
    return bool(_unsent(draft, paused) or _unframed(draft, paused))


def _unframed(draft: Draft, paused: frozenset[str]) -> list[str]:
    return [
        name
        for name, stream in draft.streams.items()
        if stream.framed < stream.last and name not in paused
    ]


def _unsent(draft: Draft, paused: frozenset[str]) -> set[str]:
    return {key.stream for key in draft.unsent} - paused


def _epochs_in_flight(draft: Draft) -> dict[str, int]:
    return {key.stream: key.epoch for key in (*draft.unsent, *draft.outstanding)}
