"""Listens to a CAN bus, by python-can: messages that a DBC file knows become readings.

cantools decodes them. A car is also asked for the values that every car has (OBD-II, mode 1).

At most one reading of each message is taken in `interval_s`: a bus has thousands a second. What a
multiplexed message has by turns are messages of their own for that, and so is what several units of
a J1939 network send under one number (their source addresses differ). What J1939 sends in several
frames is put together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import can
import cantools.database
from cantools.database.can import Message as KnownMessage
from cantools.database.namedsignalvalue import NamedSignalValue

from edgewake.edge.daemon_thread import DaemonThread
from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.sources.config import SourceConfig, SourceContext
from edgewake.edge.sources.machines.j1939_transport import Transport, group_of
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import ConfigError, LocalError
from edgewake.protocol.frames.field_names import put_over
from edgewake.protocol.plain import Check, key

WAIT_S: Final = 0.2
"""Seconds that the thread waits for a message before it looks whether there is something to do."""
AT_ONCE: Final = 1_000
"""Messages that are taken in one turn."""
REQUEST_ID: Final = 0x7DF
"""OBD-II: asked of all control units (ISO 15765-4)."""
CLOCK_MS_MAX: Final = 60_000
"""Milliseconds that a frame's time may be off our clock; some adapters count from their start."""
J1939: Final = "j1939"
"""What cantools calls the protocol of messages that are known by their parameter group."""
PAGES_MAX: Final = 10_000
"""Messages, senders and pages of which the time of the last one is remembered; some MB. Of more the
longest quiet are forgotten, and one reading too many of them is taken."""
ANSWER_IDS: Final = range(0x7E8, 0x7F0)
_CURRENT_DATA: Final = 0x01
_ANSWER: Final = 0x41

Pid = tuple[int, int, str, Callable[[Sequence[int]], float]]
PIDS: Final[Mapping[str, Pid]] = {
    "engine_load": (0x04, 1, "%", lambda b: b[0] * 100 / 255),
    "coolant_temperature": (0x05, 1, "°C", lambda b: b[0] - 40),
    "fuel_pressure": (0x0A, 1, "kPa", lambda b: b[0] * 3),
    "intake_pressure": (0x0B, 1, "kPa", lambda b: b[0]),
    "rpm": (0x0C, 2, "rpm", lambda b: (b[0] * 256 + b[1]) / 4),
    "speed": (0x0D, 1, "km/h", lambda b: b[0]),
    "timing_advance": (0x0E, 1, "°", lambda b: b[0] / 2 - 64),
    "intake_temperature": (0x0F, 1, "°C", lambda b: b[0] - 40),
    "air_flow": (0x10, 2, "g/s", lambda b: (b[0] * 256 + b[1]) / 100),
    "throttle": (0x11, 1, "%", lambda b: b[0] * 100 / 255),
    "run_time": (0x1F, 2, "s", lambda b: b[0] * 256 + b[1]),
    "fuel_level": (0x2F, 1, "%", lambda b: b[0] * 100 / 255),
    "barometric_pressure": (0x33, 1, "kPa", lambda b: b[0]),
    "voltage": (0x42, 2, "V", lambda b: (b[0] * 256 + b[1]) / 1000),
    "ambient_temperature": (0x46, 1, "°C", lambda b: b[0] - 40),
    "oil_temperature": (0x5C, 1, "°C", lambda b: b[0] - 40),
    "fuel_rate": (0x5E, 2, "L/h", lambda b: (b[0] * 256 + b[1]) / 20),
}
"""Name → number, bytes of its answer, their unit, and what they mean (SAE J1979)."""


def _pids(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in PIDS:
            raise ValueError(f"{name!r}: expected some of {', '.join(PIDS)}")
    return names


class CanConfig(SourceConfig):
    """Messages of a CAN bus, by a DBC file or as OBD-II."""

    type: Literal["can"]
    interface: str = "socketcan"
    """How the bus is reached, as python-can calls it: socketcan, slcan, pcan, …"""
    channel: str = "can0"
    """Which bus."""
    dbc: Path | None = None
    """DBC file (or ARXML, KCD, SYM) that says what messages mean. A reading has the message's name
    in `message` and its signals as fields; of J1939, `source_address` says which unit sent it."""
    obd: Annotated[tuple[str, ...], Check(_pids)] = ()
    """What a car is asked for by OBD-II, such as `rpm`, `speed`, `coolant_temperature`; the answers
    are one reading."""
    interval_s: float = key(default=1.0, ge=0, le=3600)
    """Seconds in which at most one reading of each message is taken, of each page of a multiplexed
    one and of each source address of J1939; and from one question of OBD-II to the next."""
    silence_s: float = key(default=60.0, gt=0, le=86_400)
    """Seconds without any message after which the bus is reopened."""

    def __post_init__(self) -> None:
        if (self.dbc is None) == (not self.obd):
            raise ValueError("expected `dbc` or `obd`")

    def source(self, context: SourceContext) -> Can:
        return Can(self, context.clock)


class Can:
    """Listens to the bus, and queues a reading for each message that it knows."""

    policy = Policy.DROP_NEWEST

    def __init__(self, config: CanConfig, clock: Clock) -> None:
        """Raises ConfigError."""
        self._config = config
        self._clock = clock
        self._taking = Obd(config) if config.dbc is None else Dbc(config)

    async def run(self, intake: Intake) -> None:
        config = self._config
        with DaemonThread(f"can:{config.channel}") as thread:
            try:
                bus = await thread.call(self._open)
            except (can.CanError, OSError, ValueError) as error:
                raise LocalError(f"{config.interface} {config.channel}: {error}") from error
            try:
                await self._follow(bus, thread, intake)
            except can.CanError as error:
                raise LocalError(f"{config.interface} {config.channel}: {error}") from error
            finally:
                thread.soon(bus.shutdown)

    def _open(self) -> can.BusABC:
        return can.Bus(interface=self._config.interface, channel=self._config.channel)

    async def _follow(self, bus: can.BusABC, thread: DaemonThread, intake: Intake) -> None:
        intake.note_units({name: PIDS[name][2] for name in self._config.obd})
        heard_s = self._clock.monotonic_s()
        while True:
            for question in self._taking.questions(self._clock.monotonic_s()):
                await thread.call(lambda one=question: bus.send(one, WAIT_S))  # type: ignore[misc]
            messages = await thread.call(lambda: _received(bus))
            now_s = self._clock.monotonic_s()
            if messages:
                heard_s = now_s
            elif now_s - heard_s > self._config.silence_s:
                raise LocalError(
                    f"{self._config.channel}: nothing heard for {self._config.silence_s:.0f} s"
                )
            bodies = self._taking.bodies(messages, self._clock.now_ms(), intake)
            await intake.put(intake.check_all(bodies))


def _received(bus: can.BusABC) -> list[can.Message]:
    """What has come; waits WAIT_S for the first. Blocking."""
    found: list[can.Message] = []
    ends_s = time.monotonic() + WAIT_S
    message = bus.recv(WAIT_S)
    while message is not None:
        found.append(message)
        if len(found) >= AT_ONCE or time.monotonic() > ends_s:
            break
        message = bus.recv(0)
    return found


def time_of(one: can.Message, now_ms: int) -> int:
    """When a frame came, ms; now where it has no such time. Pure."""
    found = round(one.timestamp * 1000)
    return found if abs(found - now_ms) <= CLOCK_MS_MAX else now_ms


def _is_j1939(database: Any) -> bool:
    """Does a DBC file say of its whole network that it is J1939? Pure."""
    attribute = getattr(database.dbc, "attributes", {}).get("ProtocolType")
    return attribute is not None and str(attribute.value).upper() == "J1939"


class Dbc:
    """Messages by a file."""

    def __init__(self, config: CanConfig) -> None:
        """Raises ConfigError."""
        self._interval_ms = config.interval_s * 1000
        self._noted: set[str] = set()
        """Messages whose units are told."""
        self._taken_ms: dict[tuple[Any, ...], int] = {}
        """Message, its sender and its page → when the last one was taken, the oldest first: at most
        PAGES_MAX."""
        assert config.dbc is not None
        try:
            self._database = cantools.database.load_file(config.dbc)
        except (OSError, cantools.database.Error, UnicodeDecodeError) as error:
            raise ConfigError(f"dbc = {config.dbc}: {str(error)[:300]}") from error
        self._known: dict[tuple[bool, int], KnownMessage] = {}
        """By their own numbers, which are looked for first: two messages of J1939 may differ in
        receiver or priority alone."""
        self._groups: dict[int, KnownMessage] = {}
        """Messages of J1939 by parameter group, whoever sends them; of several of one group those
        of a source address of their own are looked for first."""
        self._senders: dict[tuple[int, int], KnownMessage] = {}
        """Messages of J1939 by parameter group and source address."""
        self._is_j1939 = _is_j1939(self._database)
        for one in self._database.messages:
            self._known[one.is_extended_frame, one.frame_id] = one
            if self._is_of_group(one):
                group = group_of(one.frame_id)
                self._groups.setdefault(group, one)
                self._senders.setdefault((group, one.frame_id & 0xFF), one)
        self._lost: list[int] = []
        """Groups of messages that a frame is missing of, since `bodies` was called."""
        self._transport = Transport(self._groups, self._lost.append)
        self._selectors = {
            one.name: [signal.name for signal in one.signals if signal.is_multiplexer]
            for one in self._database.messages
        }
        """Signals that say which page of a multiplexed message it is."""

    def questions(self, _now_s: float) -> list[can.Message]:
        """Ask nothing."""
        return []

    def bodies(
        self, messages: Sequence[can.Message], now_ms: int, intake: Intake
    ) -> list[dict[str, Any]]:
        """Those that the file knows; what cannot be read of them is counted."""
        found: list[dict[str, Any]] = []
        self._lost.clear()
        for one, known, t in self._known_of(messages, now_ms):
            is_group = self._is_of_group(known)
            # a parameter group's number also says a priority, and perhaps a receiver
            sender = (known.name, one.arbitration_id & 0xFF if is_group else one.arbitration_id)
            selectors = self._selectors[known.name]
            if not selectors and not self._is_due(sender, t):
                continue
            try:
                signals = known.decode(bytes(one.data), allow_truncated=True)
            except Exception as error:  # of a format with many ways to be wrong
                intake.remark(f"{known.name}: cannot be read ({type(error).__name__})")
                continue
            if not isinstance(signals, dict) or not signals:
                continue
            values = {name: _plain(value) for name, value in signals.items()}
            page = (*sender, *(values.get(name) for name in selectors))
            if selectors and not self._is_due(page, t):
                continue
            self._taken_ms.pop(page, None)
            if len(self._taken_ms) >= PAGES_MAX:
                del self._taken_ms[next(iter(self._taken_ms))]
            self._taken_ms[page] = t
            meant: dict[str, Any] = {"message": known.name, "t": t}
            if is_group:
                meant["source_address"] = one.arbitration_id & 0xFF
            self._note_units(known, intake)
            put_over(values, meant)
            found.append(values)
        for group in self._lost:
            intake.remark(f"{self._groups[group].name}: a frame of several is missing")
        return found

    def _known_of(
        self, frames: Sequence[can.Message], now_ms: int
    ) -> Iterator[tuple[can.Message, KnownMessage, int]]:
        """Messages that the file knows, in one frame or several, and when their last one came."""
        for one in frames:
            if one.is_error_frame or one.is_remote_frame:
                continue
            t = time_of(one, now_ms)
            if (known := self._of(one)) is not None:
                yield one, known, t
            elif one.is_extended_id:
                whole = self._transport.take(one.arbitration_id, bytes(one.data), t)
                if whole is not None:
                    found = can.Message(arbitration_id=whole.number, data=whole.data)
                    if (known := self._of(found)) is not None:
                        yield found, known, t

    def _is_of_group(self, known: KnownMessage) -> bool:
        """Is it known by its parameter group, whoever sends it?"""
        return known.protocol == J1939 or (self._is_j1939 and known.is_extended_frame)

    def _note_units(self, known: KnownMessage, intake: Intake) -> None:
        """Tell the units of a message's signals, once."""
        if known.name not in self._noted:
            self._noted.add(known.name)
            intake.note_units({one.name: one.unit for one in known.signals if one.unit})

    def _of(self, one: can.Message) -> KnownMessage | None:
        """The message of the file that a frame is."""
        known = self._known.get((one.is_extended_id, one.arbitration_id))
        if known is None and one.is_extended_id:
            group = group_of(one.arbitration_id)
            own = self._senders.get((group, one.arbitration_id & 0xFF))
            return self._groups.get(group) if own is None else own
        return known

    def _is_due(self, page: tuple[Any, ...], t: int) -> bool:
        last = self._taken_ms.get(page)
        return last is None or not 0 <= t - last < self._interval_ms


def _plain(value: Any) -> Any:
    return value.name if isinstance(value, NamedSignalValue) else value


class Obd:
    """Questions to a car, and its answers."""

    def __init__(self, config: CanConfig) -> None:
        self._interval_s = config.interval_s
        self._names = {PIDS[name][0]: name for name in config.obd}
        self._due_s = -1e9
        self._left: list[int] = []
        """What is asked next."""
        self._asked_s = -1e9
        self._body: dict[str, Any] = {}

    def questions(self, now_s: float) -> list[can.Message]:
        """One at a time, as units have no room for more."""
        if not self._left and now_s >= self._due_s:
            self._due_s = now_s + self._interval_s
            self._left = list(self._names)
        if not self._left:
            return []
        data = [2, _CURRENT_DATA, self._left.pop(0), 0x55, 0x55, 0x55, 0x55, 0x55]
        return [can.Message(arbitration_id=REQUEST_ID, data=data, is_extended_id=False)]

    def bodies(
        self, messages: Sequence[can.Message], now_ms: int, _intake: Intake
    ) -> list[dict[str, Any]]:
        """One when all was asked, with the time of its last answer."""
        for one in messages:
            if answer := self._answer(one):
                self._body |= answer | {"t": time_of(one, now_ms)}
        if self._left or not self._body:
            return []
        body, self._body = self._body, {}
        return [body]

    def _answer(self, one: can.Message) -> dict[str, Any]:
        data = list(one.data)
        is_answer = one.arbitration_id in ANSWER_IDS and len(data) >= 4 and data[1] == _ANSWER
        name = self._names.get(data[2]) if is_answer else None
        if name is None:
            return {}
        _, size, _, meaning = PIDS[name]
        values = data[3 : 3 + size]
        return {name: round(meaning(values), 3)} if len(values) == size else {}
