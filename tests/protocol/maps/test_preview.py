"""What maps make of a message, shown before it is stored."""

from __future__ import annotations

from edgewake.protocol.maps import preview as previews
from edgewake.protocol.maps.compiling import compile_maps
from edgewake.protocol.maps.preview import Stored, preview

NOW_MS = 1_790_000_000_000
MAPS = compile_maps(
    """
[[map]]
name = "rooms"
topic = "a/{device}/{room}"
device = "{device}"
stream = "s"
tags = { room = "{room}" }
[map.fields]
"t" = { name = "temperature", unit = "Cel" }
""",
    "m.toml",
)


def test_a_reading_is_shown_as_it_would_be_stored() -> None:
    seen = preview(MAPS, "a/d1/hall", b'{"t":21.5}', now_ms=NOW_MS)
    fields = {"temperature": 21.5, "room": "hall"}
    assert seen.stored == [Stored("d1", "s", NOW_MS, fields, {"temperature": "°C"})]
    assert (seen.map, seen.refused, seen.lost) == ("rooms", [], 0)
    shown = "\n".join(previews.lines(MAPS, "a/d1/hall", seen, NOW_MS)).split("\n")
    assert shown[1:] == [
        "  device d1, stream s, time now", "    temperature  21.5  °C", '    room         "hall"',
    ]  # fmt: skip


def test_what_is_refused_is_shown_and_moves_no_terminal() -> None:
    seen = preview(MAPS, "a/d1/\x1b[2J", b"{", now_ms=NOW_MS)
    assert (seen.stored, seen.lost) == ([], 1)
    shown = "\n".join(previews.lines(MAPS, "a/d1/\x1b[2J", seen, NOW_MS))
    assert "REFUSED" in shown
    assert "\x1b" not in shown


def test_programs_get_the_same_as_an_object() -> None:
    seen = preview(MAPS, "b", b"{}", now_ms=NOW_MS)
    (why,) = seen.refused
    assert previews.as_object("b", seen) == {
        "topic": "b", "map": "", "readings": [], "remarks": [],
        "refused": [{"reason": str(why.reason), "detail": why.detail}],
    }  # fmt: skip


def test_a_sample_topic_is_taken_by_its_map() -> None:
    assert [previews.sample_topic(one) for one in MAPS.maps] == ["a/device/room"]
