"""The access server against its own OpenAPI document."""

from __future__ import annotations

from pathlib import Path

from tests.access.world import Server
from tests.schema import WHOLE, check


@WHOLE
def test_every_answer_is_one_that_the_document_foresees(
    access_a: Server, tmp_path: Path, whole: bool
) -> None:
    # The names of streams, filters and times are described in words, so a request that fits the
    # schema may be refused.
    check(access_a.url, tmp_path, whole=whole, disabled=("positive_data_acceptance",))
