"""Questions in children of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.lake.asking import Asking
from edgewake.protocol.errors import QueryError


@pytest.mark.parametrize(
    ("sql", "seconds", "why"),
    [
        ("SELECT length(repeat('x', 2000000000))", 60.0, "needs more memory"),
        (
            "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range * b.range % "
            "7 = 1",
            0.5,
            "not done within 0.5 s",
        ),
    ],
)
async def test_a_question_that_takes_too_much_ends_alone(
    tmp_path: Path, sql: str, seconds: float, why: str
) -> None:
    with pytest.raises(QueryError, match=why):
        await Asking(tmp_path, KafkaConfig()).ask({"sql": sql, "rows": 10, "seconds": seconds})
