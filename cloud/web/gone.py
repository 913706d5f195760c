"""Clients that are gone without a word, such as a device whose power was cut."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Final

GONE_S: Final = 30.0
"""Seconds in which a client must take something of what is sent to it; then its connection ends,
and what it held is free. One that was killed is noticed at once, by what its machine answers."""


def notice_gone(listeners: Iterable[socket.socket]) -> None:
    """End connections of these listeners whose client takes nothing any more.

    A connection has the option from its listener.
    """
    for one in listeners:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(GONE_S * 1000))
