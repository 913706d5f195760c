"""Which bridges of this broker live, and whose session must be adopted. No I/O, no clock.

Mosquitto deals a share of all messages to the session of every bridge, also while that bridge is
dead, and looks for silent clients only every five seconds. So the bridges watch each other: each
publishes a *beat* twice a second, with the sessions that it serves, and hears the beats of all, its
own included. A session that nobody beat for while MISSED_BEATS of our own came back is an orphan.
Counting our own beats instead of seconds makes the judgement fair: a bridge that was frozen itself,
or whose broker stands still, heard none of its own either and accuses nobody.

Every survivor comes to the same judgement; the first by name adopts, and the others wait their turn
in case it cannot.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import orjson

BEAT_S: Final = 0.5
"""Seconds between two beats of a bridge."""
MISSED_BEATS: Final = 5
"""Beats of our own that come back while nobody beats for a session: it is an orphan, after 2.5 to 3
seconds. A pause of a bridge that is shorter (a slow disk, a busy core) is forgiven; a longer one
costs repeats that the sequencer removes, never a loss."""
TURN_BEATS: Final = 4
"""Beats between the turns of two survivors: longer than one needs to start an adoption and to beat
for it."""
HEARD_BEATS: Final = 3
"""Beats of our own that come back before we say who is first: by then all others have beaten."""
BEAT_BYTES_MAX: Final = 4096
"""Bytes of a beat that is read; only bridges may write there."""
SESSIONS_MAX: Final = 1000
"""Sessions that are remembered; more bridges than that on one broker do not make sense."""


@dataclass(frozen=True, slots=True)
class Beat:
    """What a bridge says of itself."""

    bridge: str
    sessions: tuple[str, ...]
    """The sessions that it serves: its own, and those that it is adopting."""
    is_last: bool = False
    """The bridge is gone: its last will, or its farewell."""

    def encode(self) -> bytes:
        """The payload (JSON)."""
        return orjson.dumps(
            {"bridge": self.bridge, "sessions": self.sessions, "last": self.is_last}
        )

    @classmethod
    def decode(cls, payload: bytes) -> Beat | None:
        """Read a payload; None for a payload that is not a beat."""
        if len(payload) > BEAT_BYTES_MAX:
            return None
        try:
            match orjson.loads(payload):
                case {"bridge": str(bridge), "sessions": [*sessions], "last": bool(is_last)}:
                    return cls(bridge, tuple(str(name) for name in sessions), is_last)
        except orjson.JSONDecodeError:
            pass
        return None


class BridgePresence:
    """What one bridge knows of all."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._beats = 0
        """Own beats that came back."""
        self._last: dict[str, int] = {}
        """By session: our heartbeat count at its last heartbeat, or when it became known."""
        self._bridges: dict[str, int] = {}
        """By bridge: our heartbeat count at its last heartbeat. Those that are gone are dropped."""
        self._connected_at = -MISSED_BEATS
        """Own beats that came back before our connection was made."""

    def connected(self) -> None:
        """Our connection was made, perhaps to a broker that was restarted.

        Such a broker tells each bridge the last words of the others, which all live: nobody is gone
        before MISSED_BEATS of ours came back.
        """
        self._connected_at = self._beats
        self._last = dict.fromkeys(self._last, self._beats)

    def heard(self, beat: Beat) -> None:
        """A beat came, our own or another's."""
        if beat.is_last:
            self._gone(beat)
            return
        if beat.bridge == self._own:
            self._beats += 1
        for name in (*beat.sessions, beat.bridge):
            if name in self._last or len(self._last) < SESSIONS_MAX:
                self._last[name] = self._beats
        if beat.bridge in self._bridges or len(self._bridges) < SESSIONS_MAX:
            self._bridges[beat.bridge] = self._beats

    def _gone(self, beat: Beat) -> None:
        if beat.bridge == self._own or self._beats - self._connected_at < MISSED_BEATS:
            return
        self._bridges.pop(beat.bridge, None)
        for name in beat.sessions:
            if name in self._last:
                self._last[name] = self._beats - MISSED_BEATS

    def others(self) -> list[str]:
        """The other bridges that live."""
        return sorted(
            name
            for name, at in self._bridges.items()
            if name != self._own and self._beats - at < MISSED_BEATS
        )

    @property
    def is_first(self) -> bool:
        """Are we the first by name of the bridges that live? Not said before we have heard all."""
        return self._beats >= HEARD_BEATS and all(name > self._own for name in self.others())

    def orphan(self, registered: Iterable[str]) -> str | None:
        """A registered session that it is our turn to adopt; None while there is not any."""
        turn = sum(name < self._own for name in self.others()) * TURN_BEATS
        for name in sorted(registered):
            if name != self._own and len(self._last) < SESSIONS_MAX:
                at = self._last.setdefault(name, self._beats)
                if self._beats - at >= MISSED_BEATS + turn:
                    return name
        return None

    def postpone(self, session: str) -> None:
        """An adoption of it failed, or it proved to be served: look again after MISSED_BEATS."""
        self._last[session] = self._beats

    def forget(self, session: str) -> None:
        """Forget a session that has ended."""
        self._last.pop(session, None)
