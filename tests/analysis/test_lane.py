"""A lane on real Kafka and Spark: windows, revisions, finality, late readings, changed sets of queries."""

from __future__ import annotations

from tests.analysis.support import T0, Analysis, Feed, registered, results, sql, truth, windows

MINUTE = "window(event_time, '1 minute'), device"
SUMS = "device, count(speed) AS n, sum(speed) AS total, min(speed) AS low, max(speed) AS high, avg(speed) AS mean, count(*) AS readings"


def test_window_sums_equal_those_of_an_independent_oracle(analysis: Analysis, feed: Feed) -> None:
    for i in range(40):
        feed.send([T0 + i * 7_000 + j * 10 for j in range(25)], device=f"d{i % 3}", speed=[None if j == 3 else i + j for j in range(25)])
    (query,) = registered(sql(feed.name, SUMS, MINUTE), streams=[feed.stream])

    analysis.run([query], feed)

    found = truth(results(feed.config, query.query.name), "device")
    expected = windows(feed.sent, 60_000, 60_000, lambda reading: (reading["device"],), "speed")
    assert {place: (row["n"], row["total"], row["low"], row["high"]) for place, row in found.items()} == {
        place: (len(v), sum(v), min(v), max(v)) for place, v in expected.items()
    }
    assert all(row["mean"] == row["total"] / row["n"] and row["readings"] > row["n"] for row in found.values())
