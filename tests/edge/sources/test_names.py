"""Names that sources share: topics and their templates, messages that came before, tokens in files.

At their limits.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.sources.mqtt.recent_packets import PACKETS_MAX, RecentPackets
from edgewake.edge.sources.web.web_config import TOKEN_CHARS_MAX, read_token
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.maps.topic import TEMPLATE_BYTES_MAX, TopicTemplate

LEVELS = st.text(st.characters(codec="utf-8", exclude_characters="/+#{}\0"), max_size=6)


FIELDS = st.sampled_from(["a", "b_1", "room"])
PAIRS = st.one_of(
    LEVELS.map(lambda level: (level, None)), FIELDS.map(lambda name: ("{" + name + "}", name))
)
"""(level of a template, its field)"""


@given(
    st.lists(PAIRS, min_size=1, max_size=8, unique_by=lambda pair: pair[1] or object()), st.data()
)
def test_a_template_finds_in_every_topic_that_it_subscribes_to_what_stands_in_its_levels(
    pairs: list[tuple[str, str | None]], data: st.DataObject
) -> None:
    text = "/".join(level for level, _ in pairs)
    if not text:
        return
    template = TopicTemplate.parse(text)
    values = [data.draw(LEVELS) if name else level for level, name in pairs]
    assert template.filter == "/".join("+" if name else level for level, name in pairs)
    assert template.fields("/".join(values)) == {
        name: value for (_, name), value in zip(pairs, values, strict=True) if name
    }


@pytest.mark.parametrize("size", [TEMPLATE_BYTES_MAX, TEMPLATE_BYTES_MAX + 1])
def test_a_template_of_just_the_bound_is_one(size: int) -> None:
    text = "é" * (size // 2) + "x" * (size % 2)
    if size <= TEMPLATE_BYTES_MAX:
        assert TopicTemplate.parse(text).filter == text
    else:
        with pytest.raises(ValueError, match="bytes"):
            TopicTemplate.parse(text)


@given(st.lists(st.tuples(st.integers(1, 70), st.integers(0, 2)), max_size=150))
def test_of_all_messages_the_last_ones_are_known(order: list[tuple[int, int]]) -> None:
    """Against a plain list; also after each of them was written and read."""
    recent, model = RecentPackets(), list[tuple[int, int]]()
    for packet_id, content in order:
        recent.add(packet_id, "t", b"%d" % content)
        model = [*(each for each in model if each[0] != packet_id), (packet_id, content)][
            -PACKETS_MAX:
        ]
    for known in (recent, recent.copy(), RecentPackets.decode(recent.encode())):
        assert {
            (n, c) for n in range(1, 71) for c in range(3) if known.is_repeat(n, "t", b"%d" % c)
        } == set(model)


def test_a_copy_changes_for_itself() -> None:
    one = RecentPackets()
    other = one.copy()
    other.add(1, "t", b"")
    assert (one.is_repeat(1, "t", b""), other.is_repeat(1, "t", b"")) == (False, True)


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
