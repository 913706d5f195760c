"""A wrong configuration is explained: file, key, value, expectation."""

from pathlib import Path

import pytest

from edgewake.protocol.config import Config, load
from edgewake.protocol.errors import ConfigError


class Inner(Config):
    linger_ms: int = 5


class Outer(Config):
    device: str
    log: Inner = Inner()


def refused(tmp_path: Path, text: str | bytes) -> str:
    file = tmp_path / "agent.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as error:
        load(Outer, file)
    assert str(file) in str(error.value)
    return str(error.value)


def test_a_good_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('device = "x"\n[log]\nlinger_ms = 7\n')
    assert load(Outer, tmp_path / "a.toml") == Outer(device="x", log=Inner(linger_ms=7))


def test_an_unknown_key_is_named_with_the_nearest_known_one(tmp_path: Path) -> None:
    text = refused(tmp_path, 'device = "x"\n[log]\nlinger_msec = 7\n')
    assert "log.linger_msec: unknown key; did you mean 'linger_ms'?" in text


def test_a_wrong_unit_is_named_with_its_value(tmp_path: Path) -> None:
    assert "log.linger_ms = '5 ms'" in refused(
        tmp_path, 'device = "x"\n[log]\nlinger_ms = "5 ms"\n'
    )


def test_every_wrong_key_is_said_at_once(tmp_path: Path) -> None:
    text = refused(tmp_path, "deviec = 1\n[log]\nlinger_ms = []\n")
    assert len(text.splitlines()) == 3


def test_a_file_that_is_no_toml_or_not_there_is_said(tmp_path: Path) -> None:
    assert "not TOML" in refused(tmp_path, "device = ")
    assert "not UTF-8" in refused(tmp_path, b'device = "\xff"')
    with pytest.raises(ConfigError, match="cannot be read"):
        load(Outer, tmp_path / "none.toml")
