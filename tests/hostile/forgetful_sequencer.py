"""A sequencer that passes on what it passed on before: `python -m tests.hostile.forgetful_sequencer
--config FILE`. The control of frames that come again.
"""

from __future__ import annotations

from edgewake.cloud.sequencer.cli import sequencer
from edgewake.cloud.sequencer.order.arrival import Arrival, Output
from edgewake.cloud.sequencer.order.ordered import OrderedFrames


def _pass_again(self: OrderedFrames, key: bytes, arrival: Arrival) -> list[Output]:
    return [arrival]


if __name__ == "__main__":
    OrderedFrames._accept_old = _pass_again  # type: ignore[method-assign]
    sequencer()
