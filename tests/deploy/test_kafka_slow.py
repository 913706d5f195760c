"""What `edgewake.cloud.kafka` makes of a broker that is slow: the parts wait, they do not die."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.topic_admin import ensure_topics
from edgewake.protocol.errors import Unavailable
from tests.services import run_kafka


class FreezesAfterListing(AdminClient):  # type: ignore[misc]
    """Stops the broker's process at the one moment that matters: between the question and the
    order.
    """

    freeze: Any

    def list_topics(self, *arguments: Any, **more: Any) -> Any:
        answer = super().list_topics(*arguments, **more)
        self.freeze()
        return answer


@pytest.mark.long
def test_a_broker_that_does_not_answer_in_time_is_away_and_has_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_kafka(tmp_path) as service:
        monkeypatch.setattr(topic_admin, "METADATA_TIMEOUT_S", 2.0)
        client = FreezesAfterListing({"bootstrap.servers": service.bootstrap})
        client.freeze = service.process.freeze
        try:
            with pytest.raises(Unavailable, match=r"topic ew\.s\.slow: "):
                ensure_topics(
                    KafkaConfig(bootstrap=service.bootstrap), ["ew.s.slow"], client=client
                )
        finally:
            service.process.thaw()
        del client
