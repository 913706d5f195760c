"""Whether Spark compiles the plan of a lane's batch, or interprets it where the batch is small.

Of what it compiles Spark writes the code anew in each batch, and in each task once more, to find by
it what it compiled before: of a small batch that is a sixth of the time, and the garbage and the
virtual machine's own compiler come with it. An interpreted plan takes longer for each reading.
Results and the state are the same with both, so any batch may change it.
"""

from __future__ import annotations

from typing import Final

COMPILED: Final = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}
"""As Spark has it: what cannot be compiled is interpreted."""
INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
READINGS_MAX: Final = 1_000
"""Of a small batch. Measured: of ten frames an interpreted one takes 12 to 27 % less, of the
processors as well; of 2,000 frames of one reading about as long, or longer. More queries make more
code as well as more rows, so the bound is the same for them."""


def is_interpreted(readings: int) -> bool:
    """What suits a batch of so many readings."""
    return readings <= READINGS_MAX


def settings(readings: int) -> dict[str, str]:
    """Spark's, as they suit it."""
    return dict(INTERPRETED if is_interpreted(readings) else COMPILED)
