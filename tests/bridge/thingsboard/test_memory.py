"""What is remembered of ThingsBoard's devices, and what is forgotten for want of room."""

from __future__ import annotations

import pytest

from edgewake.cloud.bridge.thingsboard import memory as memories
from edgewake.cloud.bridge.thingsboard.memory import (
    ATTRIBUTES_MAX,
    DEVICE_BYTES_MAX,
    TOKEN_BYTES_MAX,
    TOLD_MAX,
    Memory,
    Row,
)


def memory(own: str = "one") -> tuple[Memory, list[Row]]:
    made, rows = Memory(own, f"bridge-{own}"), list[Row]()
    made.write = rows.append
    return made, rows


def test_another_bridge_knows_what_the_first_one_wrote() -> None:
    first, rows = memory()
    assert first.keep("boiler", "boiler", "client", {"fw": "1.2"}) == ""
    assert first.keep("boiler", "boiler", "shared", {"interval": 10}) == ""
    first.tell("boiler", "boiler", "c1", ["c1"])
    other, written = memory("two")
    for row in rows:
        other.follow(*row)
    kept = other.of("boiler")
    assert (kept.client, kept.shared, kept.told) == ({"fw": "1.2"}, {"interval": 10}, ["c1"])
    assert written == [], "what it read it writes to nobody"


def test_an_own_row_that_is_read_late_takes_nothing_back() -> None:
    made, rows = memory()
    made.keep("boiler", "boiler", "client", {"fw": "1"})
    made.keep("boiler", "boiler", "client", {"fw": "2"})
    made.follow(*rows[0])
    assert made.of("boiler").client == {"fw": "2"}


def test_what_says_nothing_new_is_not_written() -> None:
    made, rows = memory()
    for _ in range(3):
        made.keep("boiler", "boiler", "client", {"fw": "1"})
    assert len(rows) == 1


@pytest.mark.parametrize(
    "values",
    [
        {f"a{n}": n for n in range(ATTRIBUTES_MAX + 1)},
        {"small": 1, "large": "x" * DEVICE_BYTES_MAX},
        {f"a{n}": "x" * 1000 for n in range(100)},
    ],
)
def test_a_device_has_so_many_attributes_and_bytes(values: dict[str, object]) -> None:
    made, rows = memory()
    why = made.keep("boiler", "boiler", "client", values)
    assert "not remembered" in why
    assert len(rows[-1].value or b"") <= DEVICE_BYTES_MAX + 1000
    assert 0 < len(made.of("boiler").client) <= ATTRIBUTES_MAX
    assert made.keep("meter", "meter", "client", {"small": 2}) == "", "another one"


def test_who_speaks_for_many_forgets_his_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made, rows = memory()
    made.keep("meter", "meter", "client", {"fw": "1"})
    count = TOKEN_BYTES_MAX // 60_000 + 3
    for n in range(count):
        made.keep(f"thing-{n}", "gateway", "client", {"x": "y" * 60_000})
    assert made.of("thing-0").client == {}
    assert Row("thing-0", None) in rows
    assert made.of(f"thing-{count - 1}").client
    assert made.of("meter").client == {"fw": "1"}, "another token's"


def test_the_longest_quiet_token_goes_when_all_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memories, "BYTES_MAX", 200_000)
    made, _ = memory()
    for n in range(4):
        made.keep(f"d{n}", f"d{n}", "client", {"x": "y" * 60_000})
    assert made.of("d0").client == {}
    assert made.of("d3").client


def test_a_row_of_none_that_comes_back_forgets_nothing_new() -> None:
    made, rows = memory()
    for n in range(TOKEN_BYTES_MAX // 60_000 + 1):
        made.keep(f"thing-{n}", "gateway", "client", {"x": "y" * 60_000})
    gone = next(one for one in rows if one.value is None)
    made.keep(gone.device, "gateway", "client", {"fw": "2"})
    made.follow(*gone)
    assert made.of(gone.device).client == {"fw": "2"}
    made.follow(*gone)
    assert made.of(gone.device).client == {}, "the second one is another's: it was removed"


def test_a_device_that_went_to_another_bridge_is_not_gone() -> None:
    first, rows = memory()
    second, news = memory("two")
    first.arrived("boiler", "boiler")
    second.follow(*rows[-1])
    assert (first.here(), second.here()) == (["boiler"], [])
    second.arrived("boiler", "boiler")
    first.follow(*news[-1])
    assert first.here() == []
    assert not first.left("boiler"), "the old connection ended: it is at the second"
    assert second.left("boiler"), "it is nowhere now"
    assert second.left("boiler")
    assert second.here() == []


def test_who_was_here_before_the_bridge_died_is_known() -> None:
    before, rows = memory()
    before.arrived("boiler", "boiler")
    before.arrived("press", "gateway")
    before.left("press")
    after = Memory("another process", "bridge-one")
    for row in rows:
        after.follow(*row)
    assert after.here() == ["boiler"]


def test_commands_that_nobody_waits_for_are_forgotten() -> None:
    made, _ = memory()
    ids = [f"c{n}" for n in range(TOLD_MAX + 5)]
    for n, one in enumerate(ids):
        made.tell("boiler", "boiler", one, ids[: n + 1])
    assert made.of("boiler").told == ids[-TOLD_MAX:]
    made.tell("boiler", "boiler", "last", ["last", ids[-1]])
    assert made.of("boiler").told == [ids[-1], "last"]


@pytest.mark.parametrize("value", [b"{", b"[]", b'{"by":"x"}', b'{"by":"x","token":1}'])
def test_a_row_that_is_none_is_refused(value: bytes) -> None:
    made, _ = memory()
    with pytest.raises(ValueError, match=r"."):
        made.follow("boiler", value)
