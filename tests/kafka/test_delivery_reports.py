"""What Kafka says of records that are waited for."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, Producer

from edgewake.cloud.kafka.delivery_reports import DeliveryReports

SILENCE = "Kafka did not confirm it in time"


def test_a_record_without_a_report_is_neither_written_nor_refused() -> None:
    reports = DeliveryReports()
    assert not reports.are_in()
    assert (reports.offsets, reports.errors) == ([], [])
    assert reports.why(SILENCE) == SILENCE


@pytest.mark.parametrize("records", [1, 3])
def test_a_producer_reports_what_it_gave_up(records: int) -> None:
    """Nobody listens at the address: the client gives each record up in its time."""
    reports = DeliveryReports()
    producer = Producer(
        {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 50, "log_level": 0}
    )
    for _ in range(records):
        producer.produce("topic", b"value", on_delivery=reports)
    assert producer.flush(10) == 0
    assert reports.are_in(records)
    assert not reports.are_in(records + 1)
    assert [error.code() for error in reports.errors] == [KafkaError._MSG_TIMED_OUT] * records
    assert reports.why(SILENCE) == reports.errors[0].str() != SILENCE
    assert reports.offsets == []


def test_the_first_error_says_why_and_offsets_are_in_the_order_of_reports() -> None:
    reports = DeliveryReports()
    reports(None, _At(7))  # type: ignore[arg-type]
    reports(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), _At(0))  # type: ignore[arg-type]
    reports(KafkaError(KafkaError._TIMED_OUT), _At(0))  # type: ignore[arg-type]
    reports(None, _At(8))  # type: ignore[arg-type]
    assert reports.offsets == [7, 8]
    assert reports.why(SILENCE) == KafkaError(KafkaError.MSG_SIZE_TOO_LARGE).str()
    assert reports.are_in(4)


class _At:
    """A message of which only the offset is asked, as a producer hands it in."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset
