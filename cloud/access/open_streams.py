"""All open event streams of a server: writing, heartbeats, the end of stalled ones, the drain.

`admission` decides who is let in, by what each client has open.

Chunks are written straight to the connection, the same framed bytes for everybody, whenever a
session has some and the connection takes them: no task has to run for a chunk. A client that does
not read is not written to.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from edgewake.cloud.access import socket_wire, sse
from edgewake.cloud.access.admission import Admission, Holding
from edgewake.cloud.access.config import AccessConfig
from edgewake.cloud.access.connection import Connection, http_chunk
from edgewake.cloud.access.long_lived import LongLived
from edgewake.cloud.access.metrics import Metrics
from edgewake.cloud.access.session import Session
from edgewake.cloud.access.session_state import State
from edgewake.cloud.access.slow.policy import Policy, Wish, wish
from edgewake.cloud.access.slow.stalled import Progress, is_stalled, observe
from edgewake.cloud.access.slow.treated import Slots
from edgewake.cloud.access.slow.watch import SlowWatch, Verdict
from edgewake.cloud.held_bytes import HeldBytes
from edgewake.cloud.log.following.behind import Behind
from edgewake.cloud.log.following.turns import IsTimeUp
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.hub_bounds import Full
from edgewake.cloud.log.steps import Steps
from edgewake.cloud.log.subscription import Sight
from edgewake.cloud.log.wanted import wanted
from edgewake.cloud.rights.principal import Principal, holder
from edgewake.cloud.rights.rights import End, Rights
from edgewake.protocol.clock import Clock
from edgewake.protocol.ops.open_client import ClientProtocol, ClientState

WATCH_S: Final = 1.0
"""How often heartbeats and stalled clients are checked; a heartbeat is late by that at most."""
OPEN_S: Final = 15.0
"""Seconds after which opening a stream is given up: Kafka's own time-outs are shorter."""
WATCHED_AT_ONCE: Final = 200
"""Streams that are watched before new events have their turn: some 5 µs each."""
ENCODINGS: Final = (sse.Encoder.name, Steps.name, socket_wire.NAME)
"""What views of clients are encoded as."""
NOT_BEHIND: Final = Behind(0, 0.0)
RETRY_AFTER_S: Final = 2.0
"""Shortest wait asked of a program that is refused; the longest is three times as long, so that
they do not all come back at once."""


EXPELLED_RETRY_MS: Final = 30_000
"""A client that an operator ended should not be back at once."""
FAILED_RETRY_MS: Final = 30_000
"""A client whose streams cannot be served together would fail again: it should not try each
second."""


@dataclass(frozen=True, slots=True)
class Seen:
    """How an open stream is, for people (`edgewake.protocol.ops.open_client`)."""

    protocol: ClientProtocol
    state: ClientState
    behind: Behind
    unsent_bytes: int
    sent_bytes: int
    slow: str
    policy: str


STATES: Final[Mapping[State, ClientState]] = {
    State.STARTING: "opening",
    State.BEHIND: "behind",
    State.LIVE: "live",
    State.ENDING: "ending",
    State.GONE: "ending",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """When a member came, and as which."""

    number: int
    """Grows with each."""
    opened_at: int
    """ms since 1970 UTC."""


class Member(Protocol):
    """What counts as an open stream: it is watched once a second, and ends at the drain."""

    client: str
    """Its address."""
    reader: Principal
    holder: str
    """Who has what it reads as a share of the server: its principal, or its address where it is
    anonymous."""
    streams: int
    """How many it is of those that its reader may have; 0: of its client's address alone."""
    sight: Sight | None
    """What it reads, once that is claimed."""
    slow: SlowWatch | None
    """What is seen of how it reads; None: it reads nothing."""

    @property
    def place(self) -> object:
        """Where it catches up; None where it does not."""

    def watch(self, now: float, *, stall_s: float) -> None:
        """Look after it; `now` in monotonic seconds."""

    def end(self) -> None:
        """End when what waits is written."""

    def abort(self) -> None:
        """End at once."""

    def seen(self) -> Seen | None:
        """The state of the stream; None where this is not a stream."""

    def expel(self, reason: str) -> None:
        """An operator ends it: say so with the reason, and end."""


class OpenStream:
    """The place of one stream on one connection, from the request on; `close` it.

    Its session comes when the stream is opened.
    """

    streams = 1

    def __init__(
        self,
        streams: OpenStreams,
        connection: Connection,
        *,
        client: str,
        reader: Principal,
        heartbeat_s: float,
        wished: Wish,
        now: float,
    ) -> None:
        self.connection = connection
        self.client = client
        self.reader = reader
        self.holder = holder(reader, client)
        self.why_ended: End | None = None
        """Why its reader's right holds no longer."""
        self.sight: Sight | None = None
        """What it reads, once that is admitted."""
        self.session: Session | None = None
        self.heartbeat_s = heartbeat_s
        self.progress = Progress(0, now)
        self.written = 0
        self.written_at = now
        self.is_stalled = False
        self.is_expelled = False
        """Did an operator end it?"""
        self.slow: SlowWatch | None = SlowWatch(wished, now)
        self.is_too_slow = False
        """Was it ended because it is slow?"""
        self._owes: Verdict | None = None
        """What is done about its slowness, once it takes something."""
        self.is_closed = False
        self.sees_heartbeats = False
        """Are signs of life events?"""
        self.is_waiting = False
        """Is it open and has nothing to read yet?"""
        self._at_end: Callable[[], None] | None = None
        self._is_ending = False
        self._last_words = b""
        """Why it ends, until that can be said: nothing is while it is being opened."""
        self._has_failed = False
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection is lost."""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when all is written and the answer should end, or nobody reads it."""
        self._streams = streams
        self._has_turn = False
        self._right = streams.rights.watch(reader, self.end_of_right)
        connection.on_lost = self._on_lost
        connection.on_writable = self.write
        if connection.is_lost():
            self._on_lost()

    @property
    def place(self) -> object:
        """Where it catches up; None where it does not."""
        is_behind = self.session is not None and self.session.state is State.BEHIND
        return self.session.place if self.session is not None and is_behind else None

    def start(self, session: Session, *, retry_ms: int) -> None:
        """Write a session until it ends."""
        self.is_waiting = False
        self.session = session
        session.wake = self.write
        session.start(retry_ms=retry_ms)
        self.resume(session)

    def resume(self, session: Session) -> None:
        """Write a session that was begun before; end it where an end was asked for meanwhile."""
        self.session = session
        if self._is_ending:
            self._end_in_words()
        self.write()

    def call_at_end(self, end: Callable[[], None]) -> None:
        """Call it to end an answer that is not a stream.

        At once where it was to end while the answer was being begun.
        """
        self._at_end = end
        if self._is_ending:
            end()

    def wait(self, *, retry_ms: int) -> None:
        """Write signs of life until there is something to read, and `start`."""
        self.is_waiting = True
        self._write(http_chunk(sse.HEARTBEAT + sse.retry(retry_ms)))
        if self._is_ending:
            self._end_in_words()

    def write(self) -> None:
        """Write what there is.

        Who is behind gets one piece a turn, so that nobody's past holds up the others.
        """
        if self.session is None or self.ended.done() or self.connection.is_paused or self._has_turn:
            return
        if self._owes is not None and self.slow is not None:
            owed, self._owes = self._owes, None
            self._treat(self.session, self.slow, owed)
        # Written straight from here until the connection's buffer is full: no task of its own, and
        # nothing is held for a client that does not read.
        while not self.connection.is_paused:
            was_live = self.session.state is State.LIVE
            piece = self.session.next()
            if piece is None:
                break
            self._write(piece)
            if not was_live and self.session.state is not State.ENDING:
                self._has_turn = True
                self._streams.hub.turns.add(self._turn, live=False)
                return
        if self.session.state in (State.ENDING, State.GONE) and not self.connection.is_paused:
            self._end()

    def watch(self, now: float, *, stall_s: float) -> None:
        """Send a heartbeat when it is due; cut off a reader that takes nothing."""
        if self.session is not None and now - self.written_at >= self.heartbeat_s:
            self.session.beat()
        elif (
            self.is_waiting
            and now - self.written_at >= self.heartbeat_s
            and not self.connection.is_paused
        ):
            self._write(
                http_chunk(
                    sse.heartbeat_event(self._streams.clock.now_ms())
                    if self.sees_heartbeats
                    else sse.HEARTBEAT
                )
            )
        if self.session is not None and self.slow is not None:
            is_full = self.connection.is_paused
            found = self.slow.look(now, is_full=is_full, behind=self.session.behind)
            if found is Verdict.ACT or self._owes is None:
                self._owes = found
        self.progress = observe(
            self.progress, written=self.written, waiting=self._unsent(), now=now
        )
        if is_stalled(self.progress, now=now, stall_s=stall_s):
            self.is_stalled = True
            self.connection.abort()

    def _treat(self, session: Session, slow: SlowWatch, owed: Verdict) -> None:
        """Tell a slow reader how far it is behind, or do what its policy says."""
        session.tell_behind(slow)
        if owed is Verdict.ACT and self._act(session, slow):
            slow.has_acted()
            self._streams.metrics.slow_acts.labels(slow.wish.policy.value).inc()

    def _act(self, session: Session, slow: SlowWatch) -> bool:
        """Was anything done? What cannot be done now is tried again."""
        match slow.wish.policy:
            case Policy.SKIP:
                gaps = session.skip()
                self._streams.metrics.gaps.labels("slow").inc(gaps)
                return gaps > 0
            case Policy.CONFLATE:
                return session.conflate(self._streams.conflations, self.holder)
            case Policy.END:
                session.say(sse.end("slow", **slow.told_last(self._streams.clock.monotonic_s())))
                self.is_too_slow = True
                session.end()
                return True
            case _:
                return False

    def end_of_right(self, why: End) -> None:
        """Say that the reader's right has ended, and end.

        Bytes that wait for a client that does not read are dropped.
        """
        self.why_ended = why
        self._end_with(sse.end(why))

    def fail(self, why: str) -> None:
        """Say that it cannot be served any longer, and end."""
        self._has_failed = True
        words = sse.problem("subscription_failed", f"the subscription cannot be served: {why}")
        self._end_with(words + sse.retry(FAILED_RETRY_MS))

    @property
    def has_failed(self) -> bool:
        """Can it not be served?"""
        return self._has_failed or (self.session is not None and self.session.has_failed)

    def end(self) -> None:
        """End at the next chunk's border; one that is being opened, once it is open."""
        self._is_ending = True
        if self._at_end is not None:
            self._at_end()
        self._end_in_words()

    def _end_with(self, words: bytes) -> None:
        self._last_words = self._last_words or words  # of two ends the first is said
        if self.connection.is_paused:
            self.connection.abort()
        self.end()

    def _end_in_words(self) -> None:
        """Say the last words, and end.

        Where nothing can be said now, `start`, `resume` and `wait` do it later.
        """
        if self.ended.done() or (self.session is None and not self.is_waiting):
            return
        words, self._last_words = self._last_words, b""
        if self.session is None:
            if words:
                self._write(http_chunk(words))
            self._end()
        else:
            if words and self.session.state is not State.ENDING:
                self.session.say(words)
            self.session.end()

    def abort(self) -> None:
        """End at once."""
        self.connection.abort()

    def seen(self) -> Seen:
        """The state of the stream, for lists."""
        session = self.session
        is_read = session is not None and (
            session.state is State.BEHIND or self.connection.is_paused
        )
        return Seen(
            protocol="sse" if session is not None or self.is_waiting else "page",
            state=self._state(),
            behind=session.behind() if session is not None and is_read else NOT_BEHIND,
            unsent_bytes=self._unsent(),
            sent_bytes=self.written,
            slow="" if self.slow is None else self._streams.words_of(self.slow),
            policy=""
            if self.slow is None
            else self.slow.in_short(self._streams.clock.monotonic_s()),
        )

    def _unsent(self) -> int:
        """Bytes that the other side has not acknowledged.

        The kernel is asked only where something was written since it had them all: a call for each
        of thousands of quiet streams, each second, was a fifth of what they cost.
        """
        return 0 if self.progress.taken == self.written else self.connection.waiting()

    def _state(self) -> ClientState:
        if self.session is not None:
            return STATES[self.session.state]
        return "waiting" if self.is_waiting else "opening"

    def expel(self, reason: str) -> None:
        """End it for an operator, and say so with the reason.

        Bytes that wait for a client that does not read are dropped.
        """
        self.is_expelled = True
        self._end_with(sse.ended_by_operator(reason) + sse.retry(EXPELLED_RETRY_MS))

    def close(self) -> None:
        """Leave the hub."""
        if not self.is_closed:
            self.is_closed = True
            self.connection.on_lost = self.connection.on_writable = None
            self._right.close()
            if self.session is not None:
                self.session.close()
            self._streams.remove(self)

    def _turn(self, _: IsTimeUp) -> bool:
        self._has_turn = False
        if not self.is_closed:
            self.write()
        return False

    def _write(self, piece: bytes) -> None:
        self.connection.write(piece)
        self.written += len(piece)
        self.written_at = self._streams.clock.monotonic_s()
        self._streams.metrics.sent_bytes.inc(len(piece))
        self._streams.metrics.writes.inc()

    def _end(self) -> None:
        if not self.ended.done():
            if not (self.is_expelled or self.has_failed):
                self._write(http_chunk(sse.retry(self._streams.retry_ms())))
            self.ended.set_result(None)

    def _on_lost(self) -> None:
        for future in (self.lost, self.ended):
            if not future.done():
                future.set_result(None)


class OpenStreams:
    """The streams of one server."""

    def __init__(
        self,
        config: AccessConfig,
        metrics: Metrics,
        hub: Hub,
        *,
        rights: Rights,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.config = config
        self.rights = rights
        self.metrics = metrics
        self.hub = hub
        self.clock = clock
        self.draining = False
        self.behind = 0
        """Streams that catch up."""
        self.conflations = Slots(config.address_share)
        self.held = HeldBytes(config.address_share)
        self._admission = Admission(config)
        self._rng = rng
        self._streams: dict[Member, Entry] = {}
        self._opened = 0
        """Streams since the start."""
        self._long_lived = LongLived()
        self._of_client: Counter[str] = Counter()
        """Members of each address."""
        self._of_holder: dict[str, set[Member]] = {}
        self._of_reader: Counter[str] = Counter()
        """Streams of each holder."""
        self._of_publication: Counter[str] = Counter()
        self._holdings: dict[str, Holding] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def members(self) -> Mapping[Member, Entry]:
        """All open streams."""
        return self._streams

    def add(
        self,
        connection: Connection,
        *,
        client: str,
        reader: Principal,
        heartbeat_s: float | None,
        wished: Wish | None = None,
    ) -> OpenStream:
        """A place for one more, which counts from now on, while it is being opened too.

        Raises Full.

        `heartbeat_s` and `wished` are what its client asks for; None: the server's own.
        """
        self._let_in(client, reader, streams=OpenStream.streams)
        stream = OpenStream(
            self,
            connection,
            client=client,
            reader=reader,
            heartbeat_s=heartbeat_s or self.config.heartbeat_s,
            wished=wished or self.wish(None, None),
            now=self.clock.monotonic_s(),
        )
        self._count(stream)
        return stream

    def wish(self, policy: str | None, after: str | None) -> Wish:
        """What a client asks to be done when it reads too slowly. Raises RequestError."""
        return wish(policy, after, self.config.slow_policies, self.config.slow_after_s)

    def words_of(self, slow: SlowWatch) -> str:
        """What becomes of a slow reader, for people."""
        return slow.words(self.clock.monotonic_s(), stall_s=self.config.stall_s)

    def slow_by_policy(self) -> Counter[Policy]:
        """How many take less than there is, by what is done about it."""
        watches = (member.slow for member in self._streams)
        return Counter(
            one.wish.policy for one in watches if one is not None and one.slow_since is not None
        )

    def enter(self, member: Member) -> None:
        """Count one more member without a connection of its own. Raises Full."""
        self._let_in(member.client, member.reader, streams=member.streams)
        self._count(member)

    def _let_in(self, client: str, reader: Principal, *, streams: int) -> None:
        self._refuse_while_draining()
        self._admission.stream(total=len(self._streams), held=self._of_client[client])
        if streams:
            _check_limit(reader, "streams_max", self._of_reader[holder(reader, client)])

    def _count(self, member: Member) -> None:
        self._of_reader[member.holder] += member.streams
        self._opened += 1
        self._streams[member] = Entry(self._opened, self.clock.now_ms())
        self._of_client[member.client] += 1
        self._of_holder.setdefault(member.holder, set()).add(member)
        self._holdings.setdefault(member.holder, Holding())
        self._empty.clear()

    def claim(self, stream: Member, sight: Sight) -> None:
        """Count the stream for its holder from now on, while it is being opened too.

        Raises Full.
        """
        holding = self._holdings[stream.holder]
        publication = wanted(sight.subscription).publication
        if publication is not None:
            held = self._of_publication[publication.name]
            self._admission.publication(publication, held=held)
        self._admission.names(
            sight.subscription.streams, followed=self.hub.streams, held=lambda: holding.names
        )
        if not sight.is_common and sight not in holding:
            _check_limit(stream.reader, "subscriptions_max", holding.filters)
        self._admission.view(
            sight,
            is_served=self._serves(sight),
            total=self.hub.views.own,
            held=lambda: holding.filters,
        )
        self._admission.devices(
            holding.more_devices(sight),
            total=lambda: sum(one.devices for one in self._holdings.values()),
            held=holding.devices,
        )
        self.reclaim(stream, sight)

    def reclaim(self, stream: Member, sight: Sight) -> None:
        """Count what was released again: it is served still, so it is not refused."""
        stream.sight = sight
        self._holdings[stream.holder].add(sight)
        publication = wanted(sight.subscription).publication
        if publication is not None:
            self._of_publication[publication.name] += 1

    def admit(self, stream: Member, *, replays: bool) -> None:
        """Is there work left over for what was claimed, now that it is open? Raises Full."""
        self._refuse_while_draining()
        if stream.sight is not None:
            # Asked a second time: others may have taken the last view while streams were opened.
            is_served = self._serves(stream.sight)
            self._admission.view(
                stream.sight, is_served=is_served, total=self.hub.views.own, held=lambda: 0
            )
        if replays:
            if stream.reader.limits.past_max is not None:
                _check_limit(stream.reader, "past_max", self._places(stream.holder))
            self._admission.replay(
                total=self.hub.cohorts_reading, held=lambda: self._places(stream.holder)
            )

    def _serves(self, sight: Sight) -> bool:
        return any((sight, encoding) in self.hub.views for encoding in ENCODINGS)

    def _places(self, who: str) -> int:
        return len({stream.place for stream in self._of_holder[who]} - {None})

    def _refuse_while_draining(self) -> None:
        if self.draining:
            raise Full("this server is about to stop")

    def release(self, stream: Member) -> None:
        """What it claimed counts no more."""
        if stream.sight is not None and stream.holder in self._holdings:
            self._holdings[stream.holder].drop(stream.sight)
            publication = wanted(stream.sight.subscription).publication
            if publication is not None:
                self._of_publication[publication.name] -= 1
                if not self._of_publication[publication.name]:
                    del self._of_publication[publication.name]
        stream.sight = None

    def remove(self, stream: Member) -> None:
        """Remove a stream that has ended."""
        if self._streams.pop(stream, None) is None:
            return
        for counted, key, by in (
            (self._of_reader, stream.holder, stream.streams),
            (self._of_client, stream.client, 1),
        ):
            counted[key] -= by
            if counted[key] <= 0:
                del counted[key]
        self.release(stream)
        own = self._of_holder[stream.holder]
        own.discard(stream)
        if not own:
            del self._of_holder[stream.holder], self._holdings[stream.holder]
        if not self._streams:
            self._empty.set()

    def on_change(self, before: State, after: State) -> None:
        """Count who is behind."""
        self.behind += (after is State.BEHIND) - (before is State.BEHIND)

    def retry_ms(self) -> int:
        """A client's wait after a lost connection, with jitter so that not all return together."""
        return int(self.config.retry_ms * self._rng.uniform(0.5, 1.5))

    def retry_after_s(self) -> int:
        """Seconds after which a refused program may try again, whole and with jitter."""
        return round(RETRY_AFTER_S * self._rng.uniform(1, 3))

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self.clock.sleep(WATCH_S)
            self._long_lived.look(self._opened, self._opened - len(self._streams))
            for number, stream in enumerate(list(self._streams), start=1):
                if number % WATCHED_AT_ONCE == 0:
                    await asyncio.sleep(0)  # new events have their turn
                if stream in self._streams:
                    stream.watch(self.clock.monotonic_s(), stall_s=self.config.stall_s)

    async def drain(self, *, within_s: float) -> int:
        """Ask all streams to end at their next chunk's border, and cut off the rest later.

        Those that have not ended `within_s` are cut off; return their number.
        """
        self.draining = True
        # All are asked at once and waited for together: a stop takes as long as the slowest client,
        # and `within_s` at most.
        for stream in list(self._streams):
            stream.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._empty.wait()
        left = list(self._streams)
        for stream in left:
            stream.abort()
        return len(left)


def _check_limit(reader: Principal, name: str, held: int) -> None:
    """Raises Full for who holds as much as its role allows."""
    why = reader.limits.refusal(name, held)
    if why is not None:
        raise Full(why)
