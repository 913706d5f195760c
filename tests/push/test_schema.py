"""The push proxy against its own OpenAPI document."""

from __future__ import annotations

from pathlib import Path

from tests.push.service import serving
from tests.schema import WHOLE, check
from tests.services import Kafka


@WHOLE
def test_every_answer_is_one_that_the_document_foresees(
    kafka: Kafka, tmp_path: Path, whole: bool
) -> None:
    with serving("push", kafka.bootstrap, tmp_path) as push:
        # Streams, filters, endpoints and cursors are described in words, so a body that fits the
        # schema may be refused.
        check(
            push.url,
            tmp_path,
            "--header",
            "Authorization: Bearer nobodys-token",
            whole=whole,
            disabled=("positive_data_acceptance",),
        )
