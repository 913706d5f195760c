"""The modules that decide, each called in the browser that runs them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from tests.chromium import open_page
from tests.cutting_proxy import cutting_proxy
from tests.page.world import AccessServer, Writer
from tests.services import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="session")
"""One browser serves all tests of the page."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def page(browser: Browser, one_server: AccessServer) -> AsyncIterator[Page]:
    """The page, open: its modules are called from it, and they keep nothing."""
    opened = await open_page(browser)
    await opened.goto(one_server.url, wait_until="domcontentloaded")
    yield opened
    await opened.close()


TALLY = """async (events) => {
  const { Tally } = await import("/page/tally.js");
  const tally = new Tally(0);
  const shown = events.map((event) => tally.take(event, 1000));
  return { shown, duplicates: tally.duplicates, missing: tally.missing, kept: tally.series.size };
}"""


def _reading(seq: int | None, *, device: str = "d", epoch: int = 1) -> dict[str, Any]:
    return {"stream": "s", "device": device, "epoch": epoch, "seq": seq, "t": 1, "received_at": 1}


def _result(revision: int, *, end: int = 10) -> dict[str, Any]:
    return {
        "query": "q",
        "window_start": 0,
        "window_end": end,
        "device": "d",
        "mean": 1.5,
        "revision": revision,
    }


@pytest.mark.parametrize(
    ("events", "shown", "duplicates", "missing"),
    [
        ([_reading(7), _reading(8)], [True, True], 0, 0),
        ([_reading(7), _reading(7), _reading(6)], [True, False, False], 2, 0),
        ([_reading(7), _reading(10)], [True, True], 0, 2),
        ([_reading(7), _reading(1, epoch=2)], [True, True], 0, 0),
        ([_reading(None), _reading(None)], [True, True], 0, 0),
        ([_reading(7), _reading(7, device="e")], [True, True], 0, 0),
        ([_result(3), _result(4), _result(4, end=20)], [True, True, True], 0, 0),
        ([_result(3), _result(4), _result(3)], [True, True, False], 1, 0),
    ],
    ids=[
        "in order",
        "repeats",
        "a jump",
        "a new epoch",
        "not numbered",
        "two devices",
        "corrections",
        "a result again",
    ],
)
async def test_the_tally_knows_repeats_and_jumps(
    page: Page, events: list[dict[str, Any]], shown: list[bool], duplicates: int, missing: int
):
    counted = await page.evaluate(TALLY, events)
    assert (counted["shown"], counted["duplicates"], counted["missing"]) == (
        shown,
        duplicates,
        missing,
    )


async def test_the_tally_remembers_a_bounded_number_of_devices(page: Page):
    counted = await page.evaluate(TALLY, [_reading(1, device=f"d{i}") for i in range(2_100)])
    assert counted["kept"] == 2_000


async def test_back_off_doubles_up_to_its_bound_and_is_jittered(page: Page):
    script = (
        "async (jitter) => (await import('/page/feed.js').then(({ backoffMs }) => [0, 1, 2, "
        "20].map((n) => backoffMs(n, () => jitter))))"
    )
    assert await page.evaluate(script, 1) == [500, 1000, 2000, 15_000]
    assert await page.evaluate(script, 0) == [250, 500, 1000, 7_500]


FEED = """async ([stream, beatS]) => {
  const { Feed } = await import("/page/feed.js");
  Object.assign(window, { opened: 0, beats: 0 });
  window.EventSource = class extends EventSource {
    constructor(address) {
      super(address);
      opened += 1;
      this.addEventListener("heartbeat", () => (beats += 1));
    }
  };
  const nothing = () => {};
  const handlers = { event: nothing, watermark: nothing, gap: nothing, state: nothing };
  window.feed = new Feed(handlers, beatS);
  feed.follow([stream]);
}"""


@pytest.mark.long
async def test_a_quiet_stream_is_not_opened_again_and_one_that_is_cut_off_is_within_three_beats(
    browser: Browser, one_server: AccessServer, writer: Writer
):
    """It was opened again each minute, whether it lived or not, and nobody was told."""
    writer.reading("quiet_feed", "a", n=1.0)

    async def until(page: Page, condition: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not await page.evaluate(condition):
                await asyncio.sleep(0.05)

    page = await open_page(browser)
    async with cutting_proxy(one_server.port, []) as proxy:
        await page.clock.install()
        await page.goto(f"http://127.0.0.1:{proxy.port}/healthz")
        await page.evaluate(FEED, ["quiet_feed", 5])
        await until(page, "feed.state === 'live'")
        await page.clock.run_for(4_000)
        await until(page, "beats === 1")
        proxy.flows.clear()
        await page.clock.run_for(11_000)
        assert await page.evaluate("[opened, feed.state]") == [1, "live"], "a beat may be late"
        await page.clock.run_for(4_000)
        assert await page.evaluate("[opened, feed.state]") == [2, "reconnecting"]
        proxy.flows.set()
        await until(page, "feed.state === 'live'")
        assert await page.evaluate("[opened, feed.reconnects]") == [2, 1]
        await page.close()


async def test_colours_run_along_their_ramp(page: Page):
    script = (
        "async (s) => (await import('/page/vehicles.js')).rampColour(['#000000', '#646464', "
        "'#ffffff'], s)"
    )
    assert [await page.evaluate(script, s) for s in (-1, 0.25, 0.5, 2)] == [
        "rgb(0 0 0)",
        "rgb(50 50 50)",
        "rgb(100 100 100)",
        "rgb(255 255 255)",
    ]


async def test_colours_of_series_are_seen_on_their_ground_and_differ_in_lightness(page: Page):
    script = """(theme) => {
      document.documentElement.dataset.theme = theme;
      const style = getComputedStyle(document.documentElement);
      const names = ["--panel", ...[1, 2, 3, 4, 5, 6].map((one) => `--series-${one}`)];
      return names.map((name) => style.getPropertyValue(name).trim());
    }"""

    def luminance(colour: str) -> float:
        digits = colour.removeprefix("#")
        digits = "".join(2 * one for one in digits) if len(digits) == 3 else digits
        parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for theme in ("light", "dark"):
        ground, *series = [luminance(one) for one in await page.evaluate(script, theme)]
        for one in series:
            low, high = sorted((ground, one))
            assert (high + 0.05) / (low + 0.05) >= 3, theme
        lightness = sorted(116 * one ** (1 / 3) - 16 for one in series)
        steps = [b - a for a, b in pairwise(lightness)]
        assert min(steps) >= 2, (theme, lightness)
    await page.evaluate("() => delete document.documentElement.dataset.theme")


async def test_graticules_have_round_steps(page: Page):
    script = "async (least) => (await import('/page/vehicles.js')).roundStep(least)"
    assert [await page.evaluate(script, least) for least in (0.9, 1.5, 3, 7)] == pytest.approx(
        [1, 2, 5, 10]
    )


async def test_top_items_are_found_as_a_list_or_as_text(page: Page):
    script = "async (row) => (await import('/page/results.js')).topItems(row)"
    expected = [{"item": "Mill Road", "count": 3}]
    assert (
        await page.evaluate(script, {"query": "q", "top": '[{"item":"Mill Road","count":3}]'})
        == expected
    )
    assert (
        await page.evaluate(script, {"query": "q", "top": [{"item": "Mill Road", "count": 3}]})
        == expected
    )
    assert await page.evaluate(script, {"query": "q"}) == []


async def test_a_time_has_its_day_where_that_is_not_today(page: Page):
    said = await page.evaluate(
        """async () => {
          const { clock, local } = await import("/page/live/format.js");
          const today = new Date();
          today.setHours(9, 8, 7, 0);
          return [clock(today.getTime()), clock(Date.UTC(1999, 4, 3, 12, 0, 1)),
            local("records have waited since 1999-05-03 12:00:01 UTC, and wait"), local("no time")];
        }"""
    )
    assert said[0] == "09:08:07"
    assert "1999" in said[1]
    assert said[1].endswith(", 12:00:01")
    assert said[2:] == [f"records have waited since {said[1]}, and wait", "no time"]


async def test_whole_numbers_of_a_table_stand_in_full_however_long(page: Page) -> None:
    said = await page.evaluate(
        """async () => {
          const { cell } = await import("/page/live/format.js");
          return [1_796_000_123, 12.3456, 5e9 + 0.5, 1e300, 53.2].map((one) => cell(one))
            .concat(cell(53.2, "lat"));
        }"""
    )
    whole = "1 796 000 123".replace(" ", "\u2009")
    assert said == [whole, "12.35", "5.00e+9", "1.00e+300", "53.2", "53.20000"]


@pytest.mark.parametrize(
    ("name", "unit", "said"),
    [
        ("speed_kmh", "km/h", "speed"),
        ("battery_percent", "%", "battery"),
        ("heading_deg", "°", "heading"),
        ("net_sent_bytes_s", "B/s", "net sent"),
        ("memory_used_mib", "MiB", "memory used"),
        ("room_temperature", "°C", "room temperature"),
        ("km", "km", "km"),
        ("phase_a", "A", "phase a"),
        ("speed_kmh", "", "speed kmh"),
    ],
)
async def test_a_field_is_called_without_the_unit_that_stands_beside_it(
    page: Page, name: str, unit: str, said: str
):
    script = (
        "async (asked) => (await import('/page/live/format.js').then(({ called }) => "
        "called(...asked)))"
    )
    assert await page.evaluate(script, [name, unit]) == said


@pytest.mark.parametrize(
    ("number", "unit", "said"),
    [
        (17_020_857, "B/s", (16.232, "MB/s")),
        (3_482, "MiB", (3.4, "GiB")),
        (512, "B", (512, "B")),
        (-2_048, "B", (-2, "KB")),
        (5_000, "km", (5_000, "km")),
        (5_000, "", (5_000, "")),
    ],
)
async def test_a_size_has_the_unit_that_suits_it(
    page: Page, number: float, unit: str, said: tuple[float, str]
):
    script = """async ([number, unit]) => {
      const { sizedUnit } = await import("/page/live/format.js");
      const sized = sizedUnit(number, unit);
      return [number / sized.by, sized.unit];
    }"""
    size, shown = await page.evaluate(script, [number, unit])
    assert (size, shown) == (pytest.approx(said[0], rel=0.001), said[1])


@pytest.mark.parametrize(
    ("numbers", "step", "said"),
    [
        ([0, 20_000_000], 20_000_000, ["0", "20\u2009M"]),
        ([100_000, 150_000], 50_000, ["100\u2009k", "150\u2009k"]),
        ([77_250, 77_250.5], 0.5, ["77\u2009250.0", "77\u2009250.5"]),
        ([74.085, 74.09], 0.005, ["74.085", "74.090"]),
        ([0, 25, 1_025], 25, ["0", "25", "1\u2009025"]),
    ],
)
async def test_two_numbers_beside_an_axis_never_look_alike(
    page: Page, numbers: list[float], step: float, said: list[str]
):
    script = (
        "async ([numbers, step]) => (await import('/page/live/format.js').then(({ short }) => "
        "numbers.map((one) => short(one, step))))"
    )
    assert await page.evaluate(script, [numbers, step]) == said


async def test_an_axis_is_as_wide_as_its_longest_number(page: Page):
    script = (
        "async (texts) => (await import('/page/live/plot.js').then(({ widthOf }) => "
        "texts.map(widthOf)))"
    )
    widths = await page.evaluate(script, [None, ["0", "50"], ["77\u2009249.8", "0.0"]])
    assert widths == [58, 58, 76]
