"""TLS while the machine's clock is not set: checks all but the dates of the certificate. Pure.

The dates are checked when the clock is set.

With a clock in 1970 every certificate is not valid yet, so a device could never connect to learn
the time. OpenSSL takes no other time to check with through `ssl`; it can leave the dates out
(X509_V_FLAG_NO_CHECK_TIME). The signer and the name are checked as ever. A broker's certificate
that expired before this program was built is refused all the same, and once the clock is set a
connection made before is ended if the certificate's dates do not hold. Dates of intermediate
authorities are checked with the next connection.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Final

from edgewake.protocol.clock import CLOCK_FLOOR_MS

NO_CHECK_TIME: Final = 0x200000
"""OpenSSL's number (x509_vfy.h); `ssl` does not name it."""


def why_not_valid(certificate: Mapping[str, Any], now_ms: int) -> str | None:
    """What is wrong with a certificate's dates; None where they hold.

    `certificate` is as `ssl.SSLObject.getpeercert` gives it.
    """
    if now_ms >= 1000 * ssl.cert_time_to_seconds(certificate["notAfter"]):
        return f"the broker's certificate ended on {certificate['notAfter']}"
    if now_ms < 1000 * ssl.cert_time_to_seconds(certificate["notBefore"]):
        return f"the broker's certificate begins on {certificate['notBefore']}"
    return None


class TimeFloor:
    """The check of dates of one connection after the other."""

    def __init__(self) -> None:
        self._is_open = False
        self._unchecked: Mapping[str, Any] | None = None

    def prepare(self, context: ssl.SSLContext, now_ms: int) -> None:
        """Before a connection: leave the dates out where the clock is not set."""
        self._unchecked, self._is_open = None, now_ms < CLOCK_FLOOR_MS
        if self._is_open:
            context.verify_flags |= ssl.VerifyFlags(NO_CHECK_TIME)

    def opened(self, certificate: Mapping[str, Any], now_ms: int) -> str | None:
        """The broker showed its certificate.

        Why the connection must end; None where it may go on.
        """
        if not self._is_open:
            return None  # OpenSSL has checked
        if now_ms >= CLOCK_FLOOR_MS:
            return why_not_valid(certificate, now_ms)
        self._unchecked = certificate
        ended = ssl.cert_time_to_seconds(certificate["notAfter"]) * 1000 <= CLOCK_FLOOR_MS
        return why_not_valid(certificate, CLOCK_FLOOR_MS) if ended else None

    def look(self, now_ms: int) -> str | None:
        """Now and then: why the connection must end, now that the clock is set."""
        if self._unchecked is None or now_ms < CLOCK_FLOOR_MS:
            return None
        certificate, self._unchecked = self._unchecked, None
        return why_not_valid(certificate, now_ms)
