"""`edgewake access --config FILE` with two faults of ours built in, for what its clients are told
of them.

abs() in a filter fails for 3, and a stream cannot be opened with the filter FAULTY:
`python -m tests.access.faulty_server FILE`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from edgewake.cloud.access.run import main
from edgewake.cloud.log.filters import filter as filters
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.subscription import Plan
from edgewake.protocol.leases.lease import Subscription

_open = Hub.open
FAULTY = "n = 500"


def abs_but_of_3(part: filters.Evaluate) -> filters.Evaluate:
    """Like abs, with a bug."""

    def run(event: filters.Event) -> Any:
        value = part(event)
        if value == 3:
            raise ArithmeticError("a bug of ours")
        return abs(value)

    return run


async def open_with_a_bug(hub: Hub, subscription: Subscription, *more: Any) -> Plan:
    """Like Hub.open, with a bug."""
    if subscription.where == FAULTY:
        raise KeyError("a bug of ours")
    return await _open(hub, subscription, *more)


if __name__ == "__main__":
    filters._COMPILERS["abs"] = abs_but_of_3  # type: ignore[index]
    Hub.open = open_with_a_bug  # type: ignore[method-assign]
    main(Path(sys.argv[1]), host=None, port=None, verbose=False)
