"""Tokens of sources that ask or are asked over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.edge.sources.web.web_config import TOKEN_CHARS_MAX, read_token
from edgewake.protocol.errors import ConfigError


@pytest.mark.parametrize(
    ("content", "token"),
    [
        (b"secret", "secret"), (b"  secret \r\nmore\n", "secret"), (b"a b", "a b"),
        (b"x" * TOKEN_CHARS_MAX, "x" * TOKEN_CHARS_MAX),
        (b"", None),
        (b"\nsecret", None), (b"   \n", None), ("sécret".encode(), None),
        (b"\xef\xbb\xbfsecret", None), (b"a\0b", None), (b"a\x1bb", None),
    ],
)  # fmt: skip
def test_a_token_is_the_first_line_of_its_file(
    tmp_path: Path, content: bytes, token: str | None
) -> None:
    (tmp_path / "token").write_bytes(content)
    if token is None:
        with pytest.raises(ConfigError, match="token_file"):
            read_token(tmp_path / "token")
    else:
        assert read_token(tmp_path / "token") == token


@pytest.mark.parametrize("what", ["missing", "folder"])
def test_a_token_file_that_is_none_is_named(tmp_path: Path, what: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match=what):
        read_token(tmp_path / what)
