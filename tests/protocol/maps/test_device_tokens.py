"""Tokens of devices in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.protocol.errors import ConfigError
from edgewake.protocol.maps.device_tokens import DeviceTokens, Holder, parse

FILE = "# tokens of the hall\n\nsecret-1 car-07\nsecret-2 hub gateway\n"


def test_who_shows_a_token_is_its_device_and_a_gateway_where_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(FILE)
    tokens = DeviceTokens(tmp_path / "tokens")
    shown = ("secret-1", "secret-2", "secret-3", "")
    assert [tokens.holder_of(one) for one in shown] == [
        Holder("car-07"), Holder("hub", is_gateway=True), None, None,
    ]  # fmt: skip
    assert tokens.devices == {"car-07", "hub"}


def test_no_token_is_kept_in_memory() -> None:
    assert "secret" not in repr(parse(FILE))


@pytest.mark.parametrize(
    "line", ["secret", "secret car 07", "secret car hub", "s car/07", "a b gateway c"]
)
def test_a_wrong_line_is_named_by_its_number(line: str) -> None:
    with pytest.raises(ConfigError, match="line 2: expected `TOKEN NAME`"):
        parse(f"secret-1 car-07\n{line}\n")
