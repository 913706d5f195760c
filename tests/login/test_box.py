"""What browsers keep for us: opened as it was sealed, or not at all."""

from __future__ import annotations

import pytest

from edgewake.cloud.login.box import TEXT_BYTES_MAX, Sealed, parse_keys, seal, unseal
from edgewake.protocol.errors import ConfigError

CIPHERS = parse_keys("11" * 32 + "  # since May\n" + "22" * 32)


def test_what_was_sealed_for_a_purpose_is_opened_for_it_also_by_an_older_key() -> None:
    text = seal(CIPHERS, "session", b"anna", bytes)
    assert unseal(CIPHERS, "session", text) == b"anna"
    assert unseal(parse_keys("33" * 32 + "\n" + "11" * 32), "session", text) == b"anna"
    with pytest.raises(Sealed):
        unseal(CIPHERS, "pending", text)
    with pytest.raises(Sealed):
        unseal(parse_keys("33" * 32), "session", text)


@pytest.mark.parametrize("text", ["", "A", "é", "AAAA", "A" * 100, "x" * (TEXT_BYTES_MAX + 1)])
def test_anything_else_is_not_opened(text: str) -> None:
    with pytest.raises(Sealed):
        unseal(CIPHERS, "session", text)


@pytest.mark.parametrize("text", ["", "# none", "secret-word", "ab" * 31])
def test_a_key_file_that_cannot_be_used_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_keys(text)
    assert "secret" not in str(refusal.value)
