"""What a file of maps may say, and what is refused in it."""

from __future__ import annotations

import pytest

from edgewake.protocol.errors import ConfigError
from edgewake.protocol.maps.compiling import compile_maps
from tests.protocol.maps.test_applying import HEAD, maps


def test_a_presets_base_may_be_another() -> None:
    text = 'base = "std"\n[[map]]\ntopic = "~/{device}"\n'
    found = maps('presets = [{ name = "p", base = "x/y" }]\n', load_preset=lambda _: text)
    assert found.filters == ("x/y/+",)
    assert maps('presets = ["p"]\n', load_preset=lambda _: text).filters == ("std/+",)


def test_the_version_changes_with_what_is_said() -> None:
    first, second = maps(HEAD), maps(HEAD + "# remark\n")
    assert len(first.version) == 12
    assert first.version != second.version
    assert first.version == maps(HEAD).version


WRONG = {
    'topic = "a/#/b"': "line 2: [[map]] 1: topic: #: expected alone, as the last level",
    'topic = "a/{x}"\ndevice = "{y}"': "unknown part {y}: the topic has x",
    'topic = "a"\nstrem = "s"': "line 3: [[map]] 1: strem: unknown key: did you mean 'stream'?",
    'topic = "a"\nstream = "Hall"': "'Hall': expected a legal name, e.g. 'hall'",
    'topic = "a"\npayload = "xml"': "payload: 'xml': expected one of auto, ",
    'topic = "a"\ntime = { path = "x", format = "%Q" }': "time.format: '%Q': expected auto",
    'topic = "a"\ntime = { path = "x", zone = "Mars" }': "time.zone: 'Mars': expected a time zone",
    'topic = "a"\n[map.fields]\n"a..b" = "x"': "line 4: [[map]] 1: fields.a..b",
    'topic = "a"\n[map.fields]\na = { as = "float" }': "expected number, text, string, boolean",
    'topic = "a"\n[map.fields]\na = { scale = "x" }': "expected a number, found 'x'",
    'topic = "a"\n[map.fields]\na = { as = "text", scale = 2 }': "only a number has scale",
    'topic = "a"\n[map.fields]\n"a.*" = "x"': "a path with * needs a name with *",
    'topic = "a"\nwhen = { path = "x" }': "expected one of `is`, `in`, `not`, `exists`",
    'topic = "a"\nwhen = { part = "x", is = 1 }': "when.part: 'x': expected one of none",
    'topic = "a"\nwhen = { path = "x.*", is = 1 }': "a path to one value, or `exists` with it",
    'topic = "a/{x}"\nvalue_units.y = { a = "W" }': "'y': expected a part of the topic: x",
    'topic = "a/{x}"\nvalue_units.x = "W"': "x: expected a table of units, such as",
    'topic = "~/a"': "~ stands for `base`, which the file lacks",
    'topic = "$SYS/#"': "topics that begin with $ are the broker's own",
    'topic = "a"\npayload = "csv"': "columns: is missing",
    'topic = "a"\nothers = "some"': "others: 'some': expected keep or drop",
    'topic = 1': "topic: expected text, found '1'",
    'stream = "s"': "topic: is missing",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_file_is_refused_with_line_key_and_what_was_expected(text: str) -> None:
    with pytest.raises(ConfigError) as said:
        maps(f"[[map]]\n{text}\n")
    assert str(said.value).startswith("m.toml: line ")
    assert WRONG[text] in str(said.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected at least one [[map]]"),
        ("map = 1", "map: expected a list"),
        ("[[map", "not TOML"),
        ('presets = ["tasmot"]', "did you mean 'tasmota'?"),
        ("presets = [1]", "presets: 1: expected"),
        ('[devices]\na = "b c"\n[[map]]\ntopic = "a"', "devices.a: 'b c': expected"),
    ],
)
def test_a_file_that_is_none_is_refused(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as said:
        maps(text)
    assert expected in str(said.value)


@pytest.mark.parametrize("topic", ["#", "+/#", "ew/v1/x/up/s", "+/+/+/status", "ew/{a}/{b...}"])
def test_at_a_bridge_no_map_takes_topics_of_edgewake_itself(topic: str) -> None:
    text = f'[[map]]\ntopic = "{topic}"\ndevice = "d"\nstream = "s"\n'
    maps(text)
    with pytest.raises(ConfigError, match="takes topics of Edgewake itself"):
        maps(text, needs_names=True)


def test_at_a_bridge_each_map_says_device_and_stream() -> None:
    with pytest.raises(ConfigError, match=r"device is missing.*\n.*stream is missing"):
        maps('[[map]]\ntopic = "a"\n', needs_names=True)


def test_every_wrong_map_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as said:
        maps('[[map]]\ntopic = "a"\nx = 1\n[[map]]\ntopic = "b"\ny = 1\n')
    assert len(str(said.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("presence", "says"),
    [
        ('"no field"', "'no field': expected a field name"),
        ("{ online = [] }", "expected a field name"),
        ('{ field = "x", on = ["y"] }', "known are field, offline, online"),
        ('{ field = "x", online = [1] }', "expected a list of texts"),
        ("3", "expected text or a table"),
    ],
)
def test_a_presence_that_cannot_be_is_refused(presence: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        compile_maps(f'[[map]]\ntopic = "a"\npresence = {presence}\n')
