from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from edgewake.cloud.kafka import clients


def test_a_fatal_error_beside_a_delivery_report_leaves_as_what_it_is() -> None:
    """tests/ops/test_letter_replayer has the real one: a producer that is fenced in the middle of a
    transaction.
    """
    fenced = KafkaException(KafkaError(KafkaError._FENCED))
    with pytest.raises(KafkaException) as raised, clients.fatal_errors():
        raise SystemError("returned a result with an exception set") from fenced
    assert raised.value is fenced
    with pytest.raises(SystemError), clients.fatal_errors():
        raise SystemError("something else")
