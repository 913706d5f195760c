"""What others keep for us is opened by each of our keys, and for its own purpose alone."""

from __future__ import annotations

import pytest
from cryptography.exceptions import InvalidTag

from edgewake.cloud.ciphers import KEY_BYTES, NAME_BYTES, Ciphers, keys_in

OLD, NEW = bytes(KEY_BYTES), bytes([1] * KEY_BYTES)


def test_a_key_is_changed_while_what_the_old_one_sealed_is_still_opened() -> None:
    before, now = Ciphers([OLD], b"p"), Ciphers([NEW, OLD], b"p")
    sealed = before.encrypt("purpose", b"secret", bytes)
    assert now.decrypt(before.first, "purpose", sealed) == b"secret"
    assert (now.first != before.first, len(now.first)) == (True, NAME_BYTES)
    with pytest.raises(KeyError):
        Ciphers([NEW], b"p").decrypt(before.first, "purpose", sealed)


@pytest.mark.parametrize("change", [0, 12, -1])
def test_what_was_changed_or_is_for_another_purpose_is_not_opened(change: int) -> None:
    ciphers = Ciphers([OLD], b"p")
    sealed = bytearray(ciphers.encrypt("purpose", b"secret", bytes))
    with pytest.raises(InvalidTag):
        ciphers.decrypt(ciphers.first, "other", bytes(sealed))
    sealed[change] ^= 1
    with pytest.raises(InvalidTag):
        ciphers.decrypt(ciphers.first, "purpose", bytes(sealed))


def test_a_file_has_a_key_a_line_and_an_error_shows_none() -> None:
    assert keys_in(f"# ours\n{NEW.hex()}  # since May\n\n{OLD.hex()}\n") == [NEW, OLD]
    for keys in ([], [b"short"]):
        with pytest.raises(ValueError, match="each of 64 hex digits") as refusal:
            Ciphers(keys, b"p")
        assert "short" not in str(refusal.value)
