"""The operations API on a Kafka that holds nothing yet: it makes its topics itself, and reads them
once they are there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.cloud.ops.services.reader import _check_partitions
from edgewake.protocol.errors import Unavailable
from tests.ops.service import running
from tests.services import run_kafka


def test_it_is_ready_on_a_kafka_without_a_topic(tmp_path: Path) -> None:
    with run_kafka(tmp_path / "kafka") as kafka, running(kafka.bootstrap, tmp_path) as ops:
        assert ops.client.get("/readyz").status_code == 200
        assert ops.client.get("/v1/leases").json()["items"] == []


def test_a_table_that_is_being_made_is_waited_for_and_not_read_in_part() -> None:
    _check_partitions({"ew.leases": 64, "ew.devices": 1}, {"ew.leases": 64, "ew.devices": 1})
    with pytest.raises(Unavailable, match=r"ew\.leases, ew\.queries: is being made"):
        _check_partitions(
            {"ew.leases": 2, "ew.devices": 1}, {"ew.leases": 64, "ew.devices": 1, "ew.queries": 1}
        )
