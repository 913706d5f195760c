from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.cloud.calls.sealing import Damaged, Endpoint, UnknownKey, key_of, load
from edgewake.protocol.errors import ConfigError
from tests.push.builders import KEY, SECRET, TOKEN, random_bytes, sealer

ENDPOINT = Endpoint("https://push.example/capability-url", SECRET, TOKEN)
OTHER = bytes(32)


def test_what_was_sealed_is_opened() -> None:
    assert sealer().open("1", sealer().seal("1", ENDPOINT)) == ENDPOINT


def test_nothing_of_it_is_to_be_read() -> None:
    sealed = sealer().seal("1", ENDPOINT)
    assert not any(part in sealed for part in ("capability", "push.example", SECRET, TOKEN))
    assert sealed != sealer().seal("1", ENDPOINT)


def test_a_new_key_seals_and_the_old_one_still_opens() -> None:
    old = sealer(KEY).seal("1", ENDPOINT)
    rotated = sealer(OTHER, KEY)
    new = rotated.seal("1", ENDPOINT)
    assert rotated.open("1", old) == rotated.open("1", new) == ENDPOINT
    assert key_of(new) != key_of(old)
    assert sealer(OTHER).open("1", new) == ENDPOINT


def test_a_key_that_is_not_there_is_named() -> None:
    sealed = sealer(KEY).seal("1", ENDPOINT)
    assert not sealer(OTHER).knows(sealed)
    with pytest.raises(UnknownKey, match=key_of(sealed)):
        sealer(OTHER).open("1", sealed)


@pytest.mark.parametrize(
    "damage",
    [lambda s: s[:-6] + "AAAAAA", lambda s: s[:12], lambda s: s.partition(".")[0] + ".%%%"],
)
def test_what_was_changed_is_not_opened(damage: object) -> None:
    with pytest.raises(Damaged):
        sealer().open("1", damage(sealer().seal("1", ENDPOINT)))  # type: ignore[operator]


def test_a_sealed_endpoint_belongs_to_its_lease() -> None:
    with pytest.raises(Damaged):
        sealer().open("2", sealer().seal("1", ENDPOINT))


def test_a_key_file_has_one_key_a_line_and_the_first_seals(tmp_path: Path) -> None:
    path = tmp_path / "lease.key"
    path.write_text(f"# keys\n{OTHER.hex()}  # new\n\n{KEY.hex()}\n")
    loaded = load(path, random_bytes)
    assert loaded.open("1", sealer(KEY).seal("1", ENDPOINT)) == ENDPOINT
    assert sealer(OTHER).knows(loaded.seal("1", ENDPOINT))


@pytest.mark.parametrize("text", ["", "# nothing\n", "xyz\n", "00ff\n", KEY.hex() + "\n00\n", None])
def test_a_key_file_that_is_none_is_refused_with_its_name(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "lease.key"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=r"lease_key_file = '.*lease\.key'"):
        load(path, random_bytes)
