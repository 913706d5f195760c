"""Listens to a CAN bus, by python-can: messages that a DBC file knows become readings.

cantools decodes them. A car is also asked for the values that every car has (OBD-II, mode 1).

At most one reading of each message is taken in `interval_s`: a bus has thousands a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import can
import cantools.database
from cantools.database.namedsignalvalue import NamedSignalValue

from edgewake.edge.daemon_thread import DaemonThread
from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.sources.config import SourceConfig, SourceContext
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import ConfigError, LocalError
from edgewake.protocol.plain import Check, key

WAIT_S: Final = 0.2
"""Seconds that the thread waits for a message before it looks whether there is something to do."""
AT_ONCE: Final = 1_000
"""Messages that are taken in one turn."""
REQUEST_ID: Final = 0x7DF
"""OBD-II: asked of all control units (ISO 15765-4)."""
ANSWER_IDS: Final = range(0x7E8, 0x7F0)
_CURRENT_DATA: Final = 0x01
_ANSWER: Final = 0x41

Pid = tuple[int, int, Callable[[Sequence[int]], float]]
PIDS: Final[Mapping[str, Pid]] = {
    "engine_load": (0x04, 1, lambda b: b[0] * 100 / 255),
    "coolant_temperature": (0x05, 1, lambda b: b[0] - 40),
    "fuel_pressure": (0x0A, 1, lambda b: b[0] * 3),
    "intake_pressure": (0x0B, 1, lambda b: b[0]),
    "rpm": (0x0C, 2, lambda b: (b[0] * 256 + b[1]) / 4),
    "speed": (0x0D, 1, lambda b: b[0]),
    "timing_advance": (0x0E, 1, lambda b: b[0] / 2 - 64),
    "intake_temperature": (0x0F, 1, lambda b: b[0] - 40),
    "air_flow": (0x10, 2, lambda b: (b[0] * 256 + b[1]) / 100),
    "throttle": (0x11, 1, lambda b: b[0] * 100 / 255),
    "run_time": (0x1F, 2, lambda b: b[0] * 256 + b[1]),
    "fuel_level": (0x2F, 1, lambda b: b[0] * 100 / 255),
    "barometric_pressure": (0x33, 1, lambda b: b[0]),
    "voltage": (0x42, 2, lambda b: (b[0] * 256 + b[1]) / 1000),
    "ambient_temperature": (0x46, 1, lambda b: b[0] - 40),
    "oil_temperature": (0x5C, 1, lambda b: b[0] - 40),
    "fuel_rate": (0x5E, 2, lambda b: (b[0] * 256 + b[1]) / 20),
}
"""Name → number, bytes of its answer, and what they mean (SAE J1979): %, °C, kPa, rpm, km/h, °,
g/s, s, V, l/h."""


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
    in `message` and its signals as fields."""
    obd: Annotated[tuple[str, ...], Check(_pids)] = ()
    """What a car is asked for by OBD-II, such as `rpm`, `speed`, `coolant_temperature`; the answers
    are one reading."""
    interval_s: float = key(default=1.0, ge=0, le=3600)
    """Seconds in which at most one reading of each message is taken, and from one question of
    OBD-II to the next."""
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
            bodies = self._taking.bodies(messages, now_s, intake)
            now_ms = self._clock.now_ms()
            await intake.put(intake.check_all([body | {"t": now_ms} for body in bodies]))


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


class Dbc:
    """Messages by a file."""

    def __init__(self, config: CanConfig) -> None:
        """Raises ConfigError."""
        self._interval_s = config.interval_s
        self._taken_s: dict[int, float] = {}
        assert config.dbc is not None
        try:
            self._database = cantools.database.load_file(config.dbc)
        except (OSError, cantools.database.Error, UnicodeDecodeError) as error:
            raise ConfigError(f"dbc = {config.dbc}: {str(error)[:300]}") from error
        self._known = {one.frame_id: one for one in self._database.messages}

    def questions(self, _now_s: float) -> list[can.Message]:
        """Ask nothing."""
        return []

    def bodies(
        self, messages: Sequence[can.Message], now_s: float, intake: Intake
    ) -> list[dict[str, Any]]:
        """Those that the file knows; what cannot be read of them is counted."""
        found: list[dict[str, Any]] = []
        for one in messages:
            known = self._known.get(one.arbitration_id)
            if known is None or one.is_error_frame or one.is_remote_frame:
                continue
            if now_s - self._taken_s.get(one.arbitration_id, -1e9) < self._interval_s:
                continue
            try:
                signals = known.decode(bytes(one.data), allow_truncated=True)
            except Exception as error:  # of a format with many ways to be wrong
                intake.remark(f"{known.name}: cannot be read ({type(error).__name__})")
                continue
            if isinstance(signals, dict) and signals:
                self._taken_s[one.arbitration_id] = now_s
                values = {name: _plain(value) for name, value in signals.items()}
                found.append({"message": known.name, **values})
        return found


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
        self, messages: Sequence[can.Message], _now_s: float, _intake: Intake
    ) -> list[dict[str, Any]]:
        """One when all was asked."""
        for one in messages:
            self._body |= self._answer(one)
        if self._left or not self._body:
            return []
        body, self._body = self._body, {}
        return [body]

    def _answer(self, one: can.Message) -> dict[str, float]:
        data = list(one.data)
        is_answer = one.arbitration_id in ANSWER_IDS and len(data) >= 4 and data[1] == _ANSWER
        name = self._names.get(data[2]) if is_answer else None
        if name is None:
            return {}
        _, size, meaning = PIDS[name]
        values = data[3 : 3 + size]
        return {name: round(meaning(values), 3)} if len(values) == size else {}
