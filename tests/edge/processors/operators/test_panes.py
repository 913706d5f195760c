"""Panes: what a window remembers of the readings in it."""

from __future__ import annotations

from edgewake.edge.processors.operators import panes


def test_a_pane_counts_its_readings_also_those_without_the_field() -> None:
    pane, remarks = panes.add(panes.empty(), ["x", "y"], {"x": 1, "y": "text"})
    pane, more = panes.add(pane, ["x", "y"], {"x": None})
    assert (remarks, more) == (["not_a_number"], ["missing", "missing"])
    assert panes.summary(pane, ["x", "y"], ["count", "mean"]) == {
        "readings": 2, "x_count": 1, "x_mean": 1.0, "y_count": None, "y_mean": None,
    }  # fmt: skip
    assert panes.summary(pane, ["x", "y"], ["mean"], plain=True) == {"x": 1.0, "y": None}


def test_what_is_added_changes_no_pane_that_somebody_holds() -> None:
    before, _ = panes.add(panes.empty(), ["x"], {"x": 1})
    after, _ = panes.add(before, ["x"], {"x": 2})
    joined = panes.joined([before, after])
    assert (before["readings"], after["readings"], joined["readings"]) == (1, 2, 3)
    assert panes.summary(before, ["x"], ["sum"]) == {"readings": 1, "x_sum": 1.0}
    assert panes.empty() == {"readings": 0, "fields": {}}
