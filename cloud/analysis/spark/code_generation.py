"""Decides whether Spark compiles the plan of a lane's batch, or interprets it because it is small.

When Spark compiles, it writes the code again in each batch, and in each task once more, to look up
what it compiled before: for a small batch that is a sixth of the time, and it makes garbage and
work for the virtual machine's own compiler. An interpreted plan takes longer for each reading.
Results and the state are the same with both, so any batch may change it.
"""

from __future__ import annotations

from typing import Final

COMPILED: Final = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}
"""Spark's defaults: what cannot be compiled is interpreted."""
INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
READINGS_MAX: Final = 1_000
"""Readings of a small batch. Measured: with ten frames an interpreted one takes 12 to 27 % less
time, and processor time as well; with 2,000 frames of one reading about as long, or longer. More
queries make more code as well as more rows, so the bound is the same for them."""


def is_interpreted(readings: int) -> bool:
    """Should a batch of this size be interpreted?"""
    return readings <= READINGS_MAX


def settings(readings: int) -> dict[str, str]:
    """Spark's, as they suit it."""
    return dict(INTERPRETED if is_interpreted(readings) else COMPILED)
