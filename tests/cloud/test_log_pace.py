"""Lines of a log that strangers cause."""

from __future__ import annotations

from edgewake.cloud.log_pace import LogPace


def test_a_client_causes_a_line_each_time_and_all_together_so_many() -> None:
    pace = LogPace(per_s=10, lines_max=2)
    said = [pace.left_out(client, 0.0) for client in "aabc"]
    assert said == [0, None, 1, None]
    assert [pace.left_out("a", 9.9), pace.left_out("a", 10.0), pace.left_out("c", 10.0)] == [
        None,
        2,
        0,
    ]
