"""An access server as it was before clients had shares: its bounds are for all together.

The control of `test_shares`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from edgewake.cloud.access.config import AccessConfig
from edgewake.cloud.access.run import main
from edgewake.cloud.client_share import Bound
from tests.access.tuned_server import tuned


def _first_come(self: Bound, *, total: int, held: int) -> str | None:
    return f"this server already serves {total} {self.what}" if total >= self.most else None


if __name__ == "__main__":
    Bound.refusal = _first_come  # type: ignore[method-assign]
    AccessConfig.hub = property(tuned)  # type: ignore[method-assign, assignment]
    main(Path(sys.argv[1]), host=None, port=None, verbose=False)
