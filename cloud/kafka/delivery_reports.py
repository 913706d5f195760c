"""What Kafka says of records that are waited for: their offsets, or why they are not written."""

from __future__ import annotations

from confluent_kafka import KafkaError, Message


class DeliveryReports:
    """The delivery reports of some records: `on_delivery` of each, read after a `flush`.

    A record that has no report yet may still be written later.
    """

    def __init__(self) -> None:
        self.offsets: list[int] = []
        """Offsets of what was written, in the order of the reports."""
        self.errors: list[KafkaError] = []

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """Takes a report, from the producer."""
        if error is not None:
            self.errors.append(error)
        else:
            self.offsets.append(message.offset() or 0)

    def are_in(self, records: int = 1) -> bool:
        """Whether as many reports came as `records`."""
        return len(self.offsets) + len(self.errors) >= records

    def why(self, silence: str) -> str:
        """Why a record is not written: its error's text, or `silence` where no report came."""
        return self.errors[0].str() if self.errors else silence
