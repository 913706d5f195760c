"""Whether a page of ours makes a request."""

from __future__ import annotations

import pytest

from edgewake.cloud.web.origin import is_from_own_page

HOST = (b"host", b"ew.example:8700")


@pytest.mark.parametrize(
    ("origin", "site", "expected"),
    [
        (b"https://ew.example:8700", None, True),
        (b"http://ew.example:8700", b"same-origin", True),
        (b"http://ew.example:8700", b"cross-site", False),
        (b"http://ew.example", None, False),
        (b"https://evil.example", None, False),
        (b"https://ew.example:8700.evil.example", None, False),
        (b"https://x@ew.example:8700", None, False),
        (b"ftp://ew.example:8700", None, False),
        (b"http://[::1", None, False),
        (b"null", None, False),
        (None, None, False),
    ],
)
def test_a_page_is_ours_where_its_origin_is_the_host_that_was_asked(
    origin: bytes | None, site: bytes | None, *, expected: bool
) -> None:
    headers = dict([HOST])
    headers |= {} if origin is None else {b"origin": origin}
    headers |= {} if site is None else {b"sec-fetch-site": site}
    assert is_from_own_page(headers) is expected
