"""`edgewake access --config FILE` with bounds that nobody can configure, so that a test meets them
with little data: `python -m tests.access.tuned_server FILE '{"views_max": 100}'`.

`send_buffer_bytes` among them is that of each connection.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from edgewake.cloud.access import connection
from edgewake.cloud.access.config import AccessConfig
from edgewake.cloud.access.run import main
from edgewake.cloud.log.hub_bounds import HubBounds

_derived = AccessConfig.hub
_bounds: dict[str, Any] = {}


def tuned(config: AccessConfig) -> HubBounds:
    """The bounds of the configuration, but for those of the command line."""
    return dataclasses.replace(_derived.__get__(config), **_bounds)


if __name__ == "__main__":
    _bounds.update(json.loads(sys.argv[2]))
    send_buffer_bytes = _bounds.pop("send_buffer_bytes", connection.SEND_BUFFER_BYTES)
    connection.SEND_BUFFER_BYTES = send_buffer_bytes  # type: ignore[misc]
    AccessConfig.hub = property(tuned)  # type: ignore[method-assign, assignment]
    main(Path(sys.argv[1]), host=None, port=None, verbose=False)
