"""An access server that writes to who does not read: what waits for a client has no bound.

The control of the readers that read nothing in `tests/hostile`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from edgewake.cloud.access.config import AccessConfig
from edgewake.cloud.access.connection import Connection
from edgewake.cloud.access.run import main
from tests.access.tuned_server import tuned


def _set_nothing(self: Connection, is_paused: bool) -> None:
    """Whatever the transport says."""


if __name__ == "__main__":
    Connection.is_paused = property(lambda self: False, _set_nothing)  # type: ignore[assignment]
    AccessConfig.hub = property(tuned)  # type: ignore[method-assign, assignment]
    main(Path(sys.argv[1]), host=None, port=None, verbose=False)
