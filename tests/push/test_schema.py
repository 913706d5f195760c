"""The push proxy against its own OpenAPI document."""

from __future__ import annotations

from pathlib import Path

from tests.push.service import serving
from tests.schema import check
from tests.services import Kafka


def test_every_answer_is_one_that_the_document_foresees(kafka: Kafka, tmp_path: Path) -> None:
    with serving("push", kafka.bootstrap, tmp_path) as push:
        # Streams, filters, endpoints and cursors are described in words, so a body that fits the
        # schema may be refused.
        check(
            push.url,
            tmp_path,
            "--header",
            "Authorization: Bearer nobodys-token",
            disabled=("positive_data_acceptance",),
        )
