"""Reports of who reads: who is ended while one is made is missing in the next, at once."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from confluent_kafka import Producer

from edgewake.cloud.access.open_streams import Entry, OpenStreams
from edgewake.cloud.access.reports.client_reports import TURN, ClientReports
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.ops.open_client import REPORT_EVERY_S, Ending, ServerClients


class Sent:
    """What would go to Kafka."""

    def __init__(self) -> None:
        self.reports: list[ServerClients] = []

    def produce(self, _: str, *, key: str, value: bytes) -> None:
        assert key == "access-1"
        self.reports.append(ServerClients.model_validate_json(value))

    def poll(self, _: float) -> None: ...

    def __len__(self) -> int:
        return 0


class Quiet:
    """A member that shows nothing of itself."""

    reason = ""

    def seen(self) -> None: ...

    def expel(self, reason: str) -> None:
        self.reason = reason


class Streams:
    """As many members as one turn has, so that others run while a report is made."""

    def __init__(self) -> None:
        self.members: dict[Any, Any] = {Quiet(): Entry(number, 0) for number in range(TURN)}


class EndsOne(SystemClock):
    """While the first report is made, an operator ends a client."""

    reports: ClientReports | None = None

    async def sleep(self, seconds: float) -> None:
        reports, self.reports = self.reports, None
        if reports is not None:
            word = Ending(reason="too many", by="me", at=self.now_ms())
            reports.hear(f"{reports._prefix}7", word.model_dump_json().encode())
        await asyncio.sleep(seconds)


async def test_who_is_ended_while_a_report_is_made_is_followed_by_another_report_at_once() -> None:
    clock, sent = EndsOne(), Sent()
    streams = Streams()
    reports = ClientReports(KafkaConfig(), "access-1", cast("OpenStreams", streams), clock)
    clock.reports = reports
    async with asyncio.timeout(REPORT_EVERY_S / 2):
        await reports._turn(cast("Producer", sent))
    assert [one.total for one in sent.reports] == [0]
    assert [one.reason for one in streams.members if one.reason] == ["too many"], "a control"


async def test_without_news_the_next_report_waits(monkeypatch: Any) -> None:
    monkeypatch.setattr("edgewake.cloud.access.reports.client_reports.REPORT_EVERY_S", 0.01)
    sent = Sent()
    streams = cast("OpenStreams", Streams())
    reports = ClientReports(KafkaConfig(), "access-1", streams, SystemClock())
    await reports._turn(cast("Producer", sent))
    assert [one.total for one in sent.reports] == [0]
