"""A rule is raised and cleared once."""

from __future__ import annotations

from edgewake.edge.log.tables.codec import Reading
from tests.edge.processors.helpers import T0, at, chain, made, series


def alerts(out: list[Reading]) -> list[tuple[float, object]]:
    return [((t - T0) / 1000, fields["active"]) for t, fields in out]


def test_a_rule_is_raised_and_cleared_once_with_hysteresis():
    one = chain({"type": "rule", "name": "hot", "when": "x > 80", "clear": "x < 75"})
    out = made(one, series(70, 81, 79, 85, 76, 74, 74, 90))
    assert alerts(out) == [(1, True), (5, False), (7, True)]
    assert out[0] == at(1, rule="hot", active=True, since_ms=T0 + 1000, x=81)


def test_a_rule_waits_until_it_has_held():
    assert alerts(
        made(
            chain({"type": "rule", "name": "hot", "when": "x > 1", "for_s": 2}),
            series(2, 2, 0, 2, 2, 2, 2, 0),
        )
    ) == [
        (5, True),
        (7, False),
    ]
    assert alerts(
        made(
            chain({"type": "rule", "name": "hot", "when": "x > 1", "for_count": 3}),
            series(2, 2, 0, 2, 2, 2),
        )
    ) == [(5, True)]


def test_a_rule_is_not_moved_by_what_it_does_not_know_and_not_fooled_by_a_clock_set_back():
    one = chain({"type": "rule", "name": "hot", "when": "x > 1", "for_s": 10})
    assert alerts(made(one, [at(0, x=2), at(5, y=1), at(6, x="9"), at(10, x=2), at(11, y=0)])) == [
        (10, True)
    ]
    assert alerts(made(one, [at(100, x=2), at(1, x=2), at(10, x=2), at(11, x=2)])) == [(11, True)]
