"""How many examples hypothesis tries of each property: a share of the full number, so that a run
stays short.

`make test` tries a seventh of them, each time others: what one run does not meet, one of the next
does. `make test-examples` tries five times the full number.
"""

from __future__ import annotations

import os
from typing import Final

from hypothesis import HealthCheck, settings

MORE: Final = "EDGEWAKE_EXAMPLES"
"""Set by `make test-examples`: the share, e.g. 5."""
FULL: Final = 100
"""Of a property that says no number of its own."""
_SHARE: Final = float(os.environ.get(MORE) or 0.15)


def examples(full: int) -> int:
    """The number to try in this run, of a property that wants `full`."""
    return max(1, round(full * _SHARE))


def load_profile() -> None:
    """Settings of all properties.

    A busy machine makes no example slow: what must be fast is measured by the benchmarks.
    """
    settings.register_profile(
        "edgewake",
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        max_examples=examples(FULL),
    )
    settings.load_profile("edgewake")
