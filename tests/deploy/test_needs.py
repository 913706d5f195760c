"""What tests need of a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.protocol.errors import LocalError
from tests import needs


def test_a_disk_without_room_is_named_before_anything_runs():
    def free(path: Path) -> int:
        return needs.DISK_BYTES_MIN - (path == Path("/full"))

    needs.room([Path("/one"), Path("/other")], free=free)
    with pytest.raises(
        LocalError,
        match=r"^the disk of /full has 3071 MiB free, tests need 3072 MiB; make room, or name "
        r".*TMPDIR=",
    ):
        needs.room([Path("/one"), Path("/full")], free=free)
