"""What one test does to logging ends with it."""

from __future__ import annotations

import logging

import pytest
from pyspark.logger import PySparkLogger

from tests.conftest import PYSPARK_LOGGERS


@pytest.mark.parametrize("time", ["first", "next"])
def test_an_error_of_pyspark_makes_no_later_test_log_json(
    time: str, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("edgewake.any").error("the %s time", time)
    assert caplog.text.endswith(f"the {time} time\n")
    for name in PYSPARK_LOGGERS:
        PySparkLogger.getLogger(name).propagate = False  # as it does when it tells of a wrong query
