"""A file that is read again: one that cannot be opened now is tried again, and said once.

Every one of ours is such a file: keys of readers, of operators, of cursors, of issuers, of logins,
maps, tokens, passwords and certificates of devices.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from edgewake.cloud.bridge.web.device_passwords import DevicePasswords
from edgewake.cloud.log.cursor_keys import KeyFile
from edgewake.cloud.ops.login.keys import Keys
from edgewake.cloud.passwords import entry
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.files.changing_file import ChangingFile
from edgewake.protocol.maps.device_tokens import DeviceTokens
from edgewake.protocol.maps.map_file import MapFile

LOG = logging.getLogger("edgewake.test")


def of(path: Path, parse: Callable[[str], Any] = str.split, **more: Any) -> ChangingFile[Any]:
    return ChangingFile(path, parse, what="words", log=LOG, event="words.refused", **more)


class Watched(NamedTuple):
    """A file of ours: its text before and after, who watches it, and what is known of it."""

    before: str
    after: str
    watch: Callable[[Path], Any]
    look: Callable[[Any], object]
    known: Callable[[Any], object]


MAP = '[[map]]\ntopic = "a/{device}"\ndevice = "{device}"\nstream = "%s"\n[map.fields]\nv = "$.v"\n'
FILES = {
    "any": Watched("1", "2", of, ChangingFile.look, lambda file: file.value),
    "keys of operators": Watched(
        "a" * 16, "b" * 16, Keys, Keys.reload, lambda keys: keys.find(b"b" * 16) is not None
    ),
    "keys of cursors": Watched(
        "1 " + "00" * 32,
        "2 " + "11" * 32,
        KeyFile,
        KeyFile.look,
        lambda file: file.codec.keys.signing,
    ),
    "maps": Watched(
        MAP % "one",
        MAP % "two",
        lambda path: MapFile(path, needs_names=False),
        MapFile.look,
        lambda file: file.maps.version,
    ),
    "tokens": Watched(
        "t1 shed", "t2 barn", DeviceTokens, DeviceTokens.look, lambda file: sorted(file.devices)
    ),
    "passwords": Watched(
        f"shed:{entry('one', bytes)}",
        f"barn:{entry('two', bytes)}",
        DevicePasswords,
        DevicePasswords.look,
        lambda file: sorted(file.value),
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_opened_is_tried_again_and_said_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, path = FILES[name], tmp_path / "file"
    path.write_text(one.before)
    watched = one.watch(path)
    before = one.known(watched)
    path.write_text(one.after)
    asked: list[object] = []

    def refuse(*said: Any, **__: Any) -> None:
        asked.append(said)
        raise OSError(errno.EMFILE, "Too many open files")

    caplog.clear()
    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        for way in ("open", "read_text", "read_bytes"):
            patch.setattr(Path, way, refuse)
        one.look(watched)
        one.look(watched)
    assert len(asked) == 2, "it is tried at each look"
    assert one.known(watched) == before
    assert len(caplog.records) == 1
    one.look(watched)
    assert one.known(watched) != before


def test_what_is_wrong_in_a_file_is_not_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "file"
    path.write_text("1")
    read: list[str] = []

    def parse(text: str) -> int:
        read.append(text)
        return int(text)

    watched = of(path, parse)
    path.write_text("two")
    assert [watched.look(), watched.look()] == [False, False]
    assert len(caplog.records) == 1
    path.write_text("333")
    assert watched.look()
    assert (read, watched.value) == (["1", "two", "333"], 333)


def test_a_file_that_is_away_is_said_once_each_time_it_goes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, away = tmp_path / "file", tmp_path / "away"
    path.write_text("1")
    watched = of(path, key="words_file")
    for _ in range(2):
        path.rename(away)
        assert [watched.look(), watched.look()] == [False, False]
        away.rename(path)
        assert not watched.look(), "it is what it was"
    assert [record.getMessage() for record in caplog.records] == [
        f"keeping the previous words: words_file = {str(path)!r}: cannot be read: "
        "No such file or directory"
    ] * 2


def test_a_file_that_may_be_missing_is_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    watched = of(path, may_be_missing=True)
    assert watched.value == []
    path.write_text("1")
    assert watched.look()
    path.unlink()
    assert watched.look()
    assert watched.value == []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\xff1", "byte 0 is not UTF-8"),
        (b"1" * 11, "expected at most 10 bytes"),
        (b"x", "invalid"),
    ],
)
def test_what_is_wrong_names_the_file(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"^{path}: .*{why}"):
        of(path, int, bytes_max=10)


def test_a_mark_of_byte_order_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\xef\xbb\xbf12")
    assert of(path, int).value == 12
