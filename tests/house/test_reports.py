"""What tests print and log, however odd, ends none of pytest's processes."""

from __future__ import annotations

import logging


def test_half_a_surrogate_may_be_logged() -> None:
    """Among pytest's processes this is seen as the end of all of them."""
    logging.getLogger("edgewake.tests").warning("a name of a file: caf%s", "\udce9")
