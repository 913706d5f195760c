"""The judge judged: each anomaly, put into an otherwise clean history, is found and named, and
nothing else is.
"""

from __future__ import annotations

import ast
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from edgewake.simulators import ledger as module
from edgewake.simulators.ledger import Delivery, Judgement, Ledger, Reading, ReportedGap, WindowRow

WINDOW_MS = 10_000
DEVICES = ("a", "b")
START_MS = 1_790_000_000_000


def readings() -> list[Reading]:
    """60 readings of two devices, two windows and a half each."""
    rng = random.Random(1)
    return [
        Reading(device, n, START_MS + n * 800, round(rng.uniform(-5, 5), 3))
        for n in range(1, 31)
        for device in DEVICES
    ]


def clean_deliveries(client: str = "c") -> list[Delivery]:
    """Each reading once and in order; device b's log was made anew after n = 20."""
    epoch = {"a": lambda n: (1, n), "b": lambda n: (1, n) if n <= 20 else (2, n - 20)}
    return [
        Delivery(client, f"{client}{i}", reading, *epoch[reading.device](reading.n))
        for i, reading in enumerate(readings())
    ]


def clean_rows(client: str = "w") -> list[WindowRow]:
    """Two revisions of each window: a first half, then all of it."""
    rows = []
    for device in DEVICES:
        for start in sorted({r.t_ms - r.t_ms % WINDOW_MS for r in readings()}):
            inside = [
                r.value
                for r in readings()
                if r.device == device and start <= r.t_ms < start + WINDOW_MS
            ]
            for revision, part in ((start, inside[: len(inside) // 2]), (start + 1, inside)):
                low, high = min(part), max(part)
                rows.append(
                    WindowRow(
                        client,
                        f"{device}{start}{revision}",
                        device,
                        start,
                        start + WINDOW_MS,
                        revision,
                        len(part),
                        sum(part),
                        low,
                        high,
                    )
                )
    return rows


def judge(
    deliveries: list[Delivery],
    rows: list[WindowRow] | None = None,
    *,
    gaps: tuple[ReportedGap, ...] = (),
) -> Judgement:
    ledger = Ledger()
    for reading in readings():
        ledger.put(reading)
    for delivery in deliveries:
        ledger.delivered(delivery)
    for row in clean_rows() if rows is None else rows:
        ledger.window(row)
    for gap in gaps:
        ledger.gap(gap)
    return ledger.judge(raw_clients=["c"], window_clients=["w"], window_ms=WINDOW_MS)


def test_a_clean_history_is_clean():
    verdict = judge(clean_deliveries())
    assert verdict.clean, verdict


def test_several_clients_are_judged_each_for_itself():
    ledger = Ledger()
    for reading in readings():
        ledger.put(reading)
    for delivery in clean_deliveries("one") + clean_deliveries("two")[:-1]:
        ledger.delivered(delivery)
    verdict = ledger.judge(raw_clients=["one", "two"], window_clients=[], window_ms=WINDOW_MS)
    assert verdict.lost == ["two was never shown b n=30"]


def without(i: int) -> Callable[[list], list]:
    return lambda items: [*items[:i], *items[i + 1 :]]


def again(i: int) -> Callable[[list], list]:
    return lambda items: [*items, replace(items[i], cursor="another")]


def swapped(i: int, j: int) -> Callable[[list], list]:
    def swap(items: list) -> list:
        items[i], items[j] = items[j], items[i]
        return items

    return swap


def changed(i: int, **changes: object) -> Callable[[list], list]:
    return lambda items: [*items[:i], replace(items[i], **changes), *items[i + 1 :]]


def reading_changed(i: int, **changes: object) -> Callable[[list], list]:
    return lambda items: [
        *items[:i],
        replace(items[i], reading=replace(items[i].reading, **changes)),
        *items[i + 1 :],
    ]


RAW = {
    "one reading in the middle is dropped": (without(20), {"lost", "unreported_gaps"}),
    "the last reading is dropped": (without(59), {"lost"}),
    "the first reading is dropped": (without(0), {"lost"}),
    "all of a device is dropped": (
        lambda items: [d for d in items if d.reading.device == "a"],
        {"lost"},
    ),
    "an event comes again later": (again(10), {"twice", "disorder"}),
    "the last event comes again": (again(59), {"twice"}),
    "a reading comes again under a new number": (
        lambda items: [*items, replace(items[58], cursor="x", seq=31)],
        {"twice"},
    ),
    "two readings get one number": (changed(20, seq=10), {"twice", "unreported_gaps"}),
    "two events get one cursor": (changed(20, cursor="c3"), {"twice"}),
    "two readings of a device change places": (swapped(10, 12), {"disorder"}),
    "an old epoch comes after the new one": (
        lambda items: [*items[:30], *items[45:], *items[30:45]],
        {"disorder"},
    ),
    "a reading that was never put in comes": (
        lambda items: [*items, Delivery("c", "x", Reading("a", 31, START_MS, 1.0), 1, 31)],
        {"phantom"},
    ),
    "a foreign device comes": (
        lambda items: [*items, Delivery("c", "x", Reading("z", 1, START_MS, 1.0), 1, 1)],
        {"phantom"},
    ),
    "a value changes on the way": (reading_changed(7, value=99.0), {"corrupt"}),
    "a time changes on the way": (reading_changed(7, t_ms=START_MS), {"corrupt"}),
}


@pytest.mark.parametrize("name", RAW)
def test_an_anomaly_of_readings_is_found(name: str):
    change, anomalies = RAW[name]
    verdict = judge(change(clean_deliveries()))
    assert {kind for kind, count in verdict.counts().items() if count} == anomalies, verdict


WINDOWS = {
    "a window never comes": lambda rows: [
        row for row in rows if row.start_ms != rows[0].start_ms or row.device != "a"
    ],
    "the last revision never comes": without(1),
    "one reading is counted twice": changed(1, count=clean_rows()[1].count + 1),
    "the sum is wrong": changed(1, total=clean_rows()[1].total + 0.01),
    "the low is wrong": changed(1, low=-9.0),
    "the high is wrong": changed(1, high=9.0),
    "a window comes that nothing explains": lambda rows: [
        *rows,
        replace(rows[0], cursor="x", start_ms=0, end_ms=WINDOW_MS),
    ],
    "a window of a foreign device comes": lambda rows: [
        *rows,
        replace(rows[0], cursor="x", device="z"),
    ],
    "an older revision comes after a newer one": swapped(0, 1),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_an_anomaly_of_windows_is_found(name: str):
    verdict = judge(clean_deliveries(), WINDOWS[name](clean_rows()))
    assert {kind for kind, count in verdict.counts().items() if count} == {"wrong_windows"}, verdict


def test_a_result_row_that_comes_twice_is_found():
    verdict = judge(clean_deliveries(), again(11)(clean_rows()))
    assert verdict.twice


def test_a_reported_gap_excuses_what_it_names_and_no_more():
    reported = ReportedGap("c", 1, device="a", epoch=1, first_seq=11)
    assert judge(without(20)(clean_deliveries()), gaps=(reported,)).clean
    verdict = judge(without(20)(without(24)(clean_deliveries())), gaps=(reported,))
    assert (len(verdict.lost), len(verdict.unreported_gaps)) == (1, 1)


def test_a_gap_reported_of_another_place_explains_no_hole():
    verdict = judge(
        without(20)(clean_deliveries()),
        gaps=(ReportedGap("c", 1, device="b", epoch=1, first_seq=11),),
    )
    assert verdict.unreported_gaps


def test_a_gap_told_to_another_client_excuses_nothing():
    assert judge(without(20)(clean_deliveries()), gaps=(ReportedGap("d", 1),)).lost


def test_a_gap_of_one_device_excuses_no_loss_of_another():
    """Device a lost its first and its two last readings; a gap of three was reported of device b,
    in an epoch that b never had.
    """
    short = [
        d
        for d in clean_deliveries()
        if (d.reading.device, d.reading.n) not in {("a", 1), ("a", 29), ("a", 30)}
    ]
    verdict = judge(short, gaps=(ReportedGap("c", 3, device="b", epoch=7, first_seq=1),))
    assert verdict.lost == [
        "c was never shown a n=1",
        "c was never shown a n=29",
        "c was never shown a n=30",
    ]


def test_a_gap_of_another_range_of_the_same_device_excuses_nothing():
    verdict = judge(
        without(20)(clean_deliveries()),
        gaps=(ReportedGap("c", 1, device="a", epoch=1, first_seq=20),),
    )
    assert verdict.lost == ["c was never shown a n=11"]


def test_gaps_excuse_the_first_and_the_last_readings_of_a_device():
    short = [
        d
        for d in clean_deliveries()
        if (d.reading.device, d.reading.n) not in {("a", 1), ("a", 29), ("a", 30)}
    ]
    first, last = (
        ReportedGap("c", 1, device="a", epoch=1, first_seq=1),
        ReportedGap("c", 2, device="a", epoch=1, first_seq=29),
    )
    assert judge(short, gaps=(first, last)).clean
    assert judge(short, gaps=(last,)).lost == ["c was never shown a n=1"]


def test_a_gap_larger_than_the_hole_is_not_spent_elsewhere():
    """Ten readings were reported lost between n = 10 and n = 12: only one of them can be missing
    there, none elsewhere.
    """
    short = [
        d
        for d in clean_deliveries()
        if (d.reading.device, d.reading.n) not in {("a", 11), ("a", 25)}
    ]
    assert judge(short, gaps=(ReportedGap("c", 10, device="a", epoch=1, first_seq=11),)).lost == [
        "c was never shown a n=25"
    ]


def told_after(deliveries: list[Delivery], place: int, gap: ReportedGap) -> Judgement:
    """The gap is told after `place` readings."""
    ledger = Ledger()
    for reading in readings():
        ledger.put(reading)
    for i, delivery in enumerate(deliveries):
        if i == place:
            ledger.gap(gap)
        ledger.delivered(delivery)
    return ledger.judge(raw_clients=["c"], window_clients=[], window_ms=WINDOW_MS)


def test_a_gap_without_a_device_excuses_what_is_missing_where_it_was_told():
    """As when retention overtook a sleeping client: both devices' readings 11 to 13 are gone."""
    short = [d for d in clean_deliveries() if d.reading.n not in (11, 12, 13)]
    assert told_after(short, 20, ReportedGap("c", 6)).lost == []
    assert len(told_after(short, 20, ReportedGap("c", 5)).lost) == 1
    assert len(told_after(short, 40, ReportedGap("c", 6)).lost) == 6


def test_a_reading_that_was_announced_may_come_late_and_must_come():
    """A gap of count 0: readings 11 and 12 of device a were not there in time."""
    early, late = split(clean_deliveries(), "a", (11, 12))
    assert told_after(early[:30] + late + early[30:], 20, ReportedGap("c", 0, "a", 1, 11)).clean
    assert (
        len(
            told_after(early[:30] + late + early[30:], 20, ReportedGap("c", 0, "b", 1, 11)).disorder
        )
        == 2
    ), "of another device"
    assert (
        len(
            told_after(early[:30] + late + early[30:], 40, ReportedGap("c", 0, "a", 1, 11)).disorder
        )
        == 2
    ), "told too late"
    assert len(told_after(early, 20, ReportedGap("c", 0, "a", 1, 11)).lost) == 2, (
        "it excuses nothing that never comes"
    )


def split(
    deliveries: list[Delivery], device: str, numbers: tuple[int, ...]
) -> tuple[list[Delivery], list[Delivery]]:
    """All others, and these."""
    these = [d for d in deliveries if d.reading.device == device and d.reading.n in numbers]
    return [d for d in deliveries if d not in these], these


def test_a_window_that_changes_after_it_was_final_is_found():
    ledger = Ledger()
    for reading in readings():
        ledger.put(reading)
    first, second, *rest = clean_rows()
    ledger.window(first)
    ledger.watermark("w", first.end_ms)
    for row in (second, *rest):
        ledger.window(row)
    verdict = ledger.judge(raw_clients=[], window_clients=["w"], window_ms=WINDOW_MS)
    changed = [row for row in (second, *rest) if row.end_ms <= first.end_ms]
    assert len(verdict.changed_after_final) == len(changed) > 0
    assert verdict.wrong_windows == []


def test_a_refused_reading_needs_not_arrive():
    ledger = Ledger()
    ledger.put(Reading("a", 1, START_MS, 1.0))
    ledger.refused("a", 1)
    assert ledger.judge(raw_clients=["c"], window_clients=["w"], window_ms=WINDOW_MS).clean


def test_any_single_dropped_or_repeated_event_is_found():
    """Each of the 60, one at a time."""
    for i in range(60):
        assert judge(without(i)(clean_deliveries())).lost
        assert judge(again(i)(clean_deliveries())).twice


def test_any_single_wrong_row_is_found():
    rows = clean_rows()
    for i in range(1, len(rows), 2):
        assert judge(
            clean_deliveries(), changed(i, count=rows[i].count - 1)(clean_rows())
        ).wrong_windows


def test_what_is_missing_is_known_while_waiting():
    ledger = Ledger()
    for reading in readings():
        ledger.put(reading)
    for delivery in clean_deliveries()[:-1]:
        ledger.delivered(delivery)
    assert ledger.missing("c") == {("b", 30)}
    assert len(ledger.unfinished_windows("w", WINDOW_MS)) == len(
        {(r.device, r.t_ms // WINDOW_MS) for r in readings()}
    )


@pytest.mark.parametrize("name", ["ledger", "faults", "clients"])
def test_the_oracle_imports_nothing_of_ours(name: str):
    tree = ast.parse(Path(module.__file__).with_name(f"{name}.py").read_text())
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names
