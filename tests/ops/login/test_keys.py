"""Key files of the operations API."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.cloud.ops.login.keys import Keys
from edgewake.protocol.errors import ConfigError


@pytest.fixture(autouse=True)
def port(monkeypatch: pytest.MonkeyPatch) -> None:
    """httpx's ASGI transport names no port."""
    monkeypatch.setattr("edgewake.cloud.ops.login.auth.cookie_name", lambda _: "edgewake_ops_80")


@pytest.mark.parametrize(
    "content",
    [None, b"", b"# none\n", b"short", "schlüssel-schlüssel".encode(), b"\xff" * 20, b"a read",
        b"a owner " + b"k" * 20, b"a read " + b"k" * 20 + b"#k",
     b"\xc3\xa4 read " + b"k" * 20, b"a read " + b"k" * 20 + b"\na read " + b"l" * 20],
)  # fmt: skip
def test_a_key_file_that_cannot_be_used_is_named_and_its_keys_are_not(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "ops.key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"ops\.key") as raised:
        Keys(path)
    assert "kkkk" not in str(raised.value)
