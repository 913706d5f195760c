"""A share of all things, the same ones on every server and tomorrow. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

import orjson

_SHARES: Final = 2**64


def is_in_share(values: Sequence[Any], share: float) -> bool:
    """Is the thing that these values name in the share? A larger share has those of a smaller."""
    digest = blake2b(orjson.dumps(values), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * _SHARES
