"""What we read of Spark's checkpoint: the offsets that a batch reaches, written before it runs, and whether it is known to be done."""

from __future__ import annotations

from pathlib import Path

import orjson

from edgewake.protocol.errors import LocalError


def offsets_of(checkpoint: Path, batch: int, topic: str) -> dict[int, int]:
    """Partition → offset after the batch's last record. Raises LocalError."""
    path = checkpoint / "offsets" / str(batch)
    try:
        lines = path.read_bytes().splitlines()
        # v1: version, metadata, one line a source; later versions keep the sources' lines last as well.
        return {int(partition): int(offset) for partition, offset in orjson.loads(lines[-1])[topic].items()}
    except (OSError, ValueError, KeyError, IndexError, AttributeError, TypeError) as error:
        raise LocalError(f"{path}: not a batch's offsets: {error}") from error


def is_done(checkpoint: Path, batch: int) -> bool:
    """Has Spark noted the end of the batch? Otherwise it runs it again at the next start."""
    return (checkpoint / "commits" / str(batch)).exists()
