"""A batch that Spark planned and that never ends: how many of its records are tried the next time.

What a batch takes of memory is known when it is computed: a record has one reading or a megabyte of
them. Spark keeps to its plan, and a plan that does not fit would end the analysis at each start. So
after TRIES starts it is planned again, smaller each time; what of the new one was emitted
before is known by its offsets (batch_commit).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from edgewake.cloud.analysis.checkpoints import checkpoint as checkpoints
from edgewake.cloud.analysis.results.batch_commit import Offsets, between

log = logging.getLogger("edgewake.analysis")

TRIES: Final = 2
"""Starts with the same plan: a process may be killed for other reasons, too."""
SHRINK: Final = 8
LEAST: Final = 32
"""Records that are tried at least; of the largest they are 32 MiB."""
_NOTE: Final = "tries"
"""The file beside Spark's that says of which batch, and how often it was begun."""


def records_max(checkpoint: Path, firsts: Callable[[], Offsets], most: int) -> int:
    """How many records a batch may have from this start on. Raises LocalError, Unavailable.

    It is `most`, unless the planned one was begun too often. `firsts`: where topics begin of which
    nothing was computed.
    """
    batch = checkpoints.unfinished(checkpoint)
    if batch is None:
        return most
    note = checkpoint / _NOTE
    tries = _tries(note, batch) + 1
    note.write_text(f"{batch} {tries}", "ascii")
    if tries <= TRIES:
        return most
    before = checkpoints.offsets_of(checkpoint, batch - 1) if batch else firsts()
    records = between(before, checkpoints.offsets_of(checkpoint, batch))
    fewer = min(most, max(LEAST, records // SHRINK))
    if fewer < records:
        checkpoints.forget_plan(checkpoint, batch)
        log.warning(
            "%s: batch %d of %d records was begun %d times and never ended: it is planned again, "
            "with %d at most",
            checkpoint, batch, records, tries - 1, fewer, extra={"event": "batch.smaller"},
        )  # fmt: skip
    return fewer


def _tries(note: Path, batch: int) -> int:
    try:
        of, tries = map(int, note.read_text("ascii").split())
    except (OSError, ValueError):  # a kill may have torn it
        return 0
    return tries if of == batch else 0
