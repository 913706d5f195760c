"""Take the pictures of all pages from a running system: `make pictures`.

    python docs/pictures.py [--minutes 6] [--keep DIR] [NAME …]

It starts `edgewake up` in a folder of its own, gives it what a screen needs to have something to
show (a board, a rule, a refused message, a note, a reader), lets it run for some minutes, and
writes docs/pictures/NAME-WIDTH-THEME.webp. Exit code 1 where a screen never has something to show.
`--keep`: the folder of data, which a second run goes on with.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM: Final = "/usr/bin/chromium"
ARGUMENTS: Final = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--lang=en-GB",
]
FOLDER: Final = Path(__file__).with_name("pictures")
PORT: Final = 18_700
PATIENCE_S: Final = 300.0
QUALITY: Final = 60
"""Of WebP: text stays sharp, and a picture takes some 20 KB."""
SIZES: Final = {"desk": (1440, 900), "phone": (390, 844)}
THEMES: Final = ("light", "dark")
EVENTS_DEVICE: Final = "car-03"


@dataclass(frozen=True)
class Screen:
    """A page, and when it has something to show (JavaScript)."""

    address: str
    is_full: str = "() => document.querySelector('main .card') !== null"
    is_town: bool = False
    """At the access server."""
    is_login: bool = False
    """Shown to somebody who is not logged in."""
    press: str = ""
    """The button that is pressed first; empty: none is."""
    is_done: str = ""
    """When the press has come to what is shown (JavaScript); empty: at once."""


ROWS: Final = "() => document.querySelectorAll('main tbody tr').length > 0"
SQL: Final = "() => document.querySelector('#sql .keyword')"
SLOW: Final = """SELECT a.device, b.device AS other, count(*) AS times
FROM vehicle_position a, vehicle_position b, vehicle_position c
WHERE abs(a.speed_kmh - b.speed_kmh) < 0.01 AND c.speed_kmh > a.speed_kmh
GROUP BY ALL ORDER BY times DESC LIMIT 20"""
"""A question that takes a while."""
CHART: Final = "() => document.querySelector('main .uplot canvas') !== null"
PAST: Final = """() => performance.getEntriesByType("resource")
  .filter(({ name, responseEnd }) => name.endsWith("/v1/sql") && responseEnd).length >= 3"""
"""What came before the page was opened is there, too."""
OF_DEVICE: Final = """() => performance.getEntriesByType("resource")
  .some(({ name, responseEnd }) => name.includes("where=device") && responseEnd)"""
"""What a device sent before is there, too."""
LINES: Final = """() => performance.getEntriesByType("resource")
  .filter(({ name, responseEnd }) => name.includes("select=") && responseEnd).length >= 3"""
"""The last minutes of the devices of a chart are there, too."""
SCREENS: Final = {
    "town": Screen(
        "/town",
        "() => { const stats = window.edgewake?.stats; return stats?.state === 'live' && "
        "stats.shown.vehicles >= 10 && stats.shown.windows >= 4; }",
        is_town=True,
    ),
    "shared_board": Screen("/#/boards/town", LINES, is_town=True),
    "live": Screen("/", "() => document.querySelectorAll('.spark polyline').length > 3", True),
    "live_stream": Screen("/#/streams/vehicle_position", CHART, True),
    "live_query": Screen("/#/queries/top_streets", ROWS, True),
    "live_device": Screen(f"/#/devices/{EVENTS_DEVICE}", OF_DEVICE, True),
    "system": Screen("#/", CHART),
    "login": Screen("in", "() => document.querySelector('.login input')", is_login=True),
    "boards": Screen("#/boards", ROWS),
    "board_form": Screen("#/boards/town?edit=1", PAST),
    "board": Screen("#/boards/town", PAST),
    "alerts": Screen("#/alerts", "() => document.querySelector('.raised') !== null"),
    "rule": Screen("#/alerts?new=1&stream=vehicle_position"),
    "destinations": Screen("#/alerts?show=destinations", ROWS),
    "devices": Screen("#/devices", ROWS),
    "device": Screen(f"#/devices/{EVENTS_DEVICE}", CHART),
    "streams": Screen("#/streams", ROWS),
    "stream": Screen(
        "#/streams/vehicle_position",
        "() => document.querySelectorAll('.console tbody tr').length > 10",
    ),
    "queries": Screen("#/queries", ROWS),
    "query": Screen("#/queries/top_streets", "() => document.querySelector('.console') !== null"),
    "editor": Screen(
        "#/queries/new?from=top_streets",
        "() => document.querySelector('#text .keyword')",
        press="Check",
        is_done="() => document.querySelector('.plan')",
    ),
    "ask": Screen("#/ask", SQL, press="Ask", is_done=ROWS),
    "asking": Screen(
        f"#/ask?sql={quote(SLOW)}",
        SQL,
        press="Ask",
        is_done="() => document.querySelector('[role=timer]')",
    ),
    "summaries": Screen("#/summaries", ROWS),
    "summary": Screen("#/summaries/vehicle_position.speed_kmh?value=50", CHART),
    "letters": Screen("#/letters", ROWS),
    "letter": Screen("#/letters/0", "() => document.querySelector('#letter') !== null"),
    "clients": Screen("#/clients", ROWS),
    "deliveries": Screen("#/deliveries", ROWS),
    "enrolment": Screen("#/enrolment", ROWS),
    "erasures": Screen("#/erasures", ROWS),
    "trace": Screen("#/trace?token={token}", "() => document.querySelector('ol.way') !== null"),
    "problems": Screen("#/history"),
    "history": Screen("#/history?show=events", ROWS),
    "audit": Screen("#/audit", ROWS),
    "gaps": Screen("#/gaps", press="Look for gaps"),
    "faults": Screen(
        "#/faults",
        "() => [...document.querySelectorAll('.told li')].some((one) => "
        "one.textContent.includes('over after'))",
    ),
}


@dataclass(frozen=True)
class System:
    """Where it is."""

    access: str
    ops: httpx.Client
    data: Path

    def link(self) -> str:
        """Logs a browser in, once."""
        path = self.ops.post("/v1/tickets").raise_for_status().json()["path"]
        return f"{self.ops.base_url}".rstrip("/") + path


@contextmanager
def running(data: Path) -> Iterator[System]:
    """`edgewake up`, until every part answers; stopped at the end."""
    command = [sys.executable, "-m", "edgewake.deploy.cli", "up"]
    data.parent.mkdir(parents=True, exist_ok=True)
    log = (data.parent / "up.log").open("wb")
    process = subprocess.Popen(
        [*command, "--data", str(data), "--port-base", str(PORT), "--faults", "--listen", "auto"],
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        key = data / "secrets/ops.key"
        until(lambda: key.exists() and key.read_text().split(), "the key is made")
        with httpx.Client(
            base_url=f"http://127.0.0.1:{PORT + 2}",
            headers={"X-API-Key": key.read_text().split()[-1]},
            timeout=30,
        ) as ops:
            until(lambda: answers(ops), "the operations API answers")
            yield System(f"http://127.0.0.1:{PORT}", ops, data)
    finally:
        os.kill(process.pid, signal.SIGINT)
        process.wait(60)
        log.close()


def answers(ops: httpx.Client) -> bool:
    """Is it ready, and does the analysis run?"""
    try:
        if ops.get("/readyz").status_code != 200:
            return False
        return "running" in ops.get("/v1/overview").json()["queries"]
    except (httpx.HTTPError, ValueError, KeyError):
        return False


def until(holds: Callable[[], object], what: str) -> None:
    """Wait; exits with a sentence where it never holds."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > PATIENCE_S:
            sys.exit(f"pictures: within {PATIENCE_S:.0f} s it was not so that {what}")
        time.sleep(0.5)


def furnish(system: System) -> None:
    """What screens need to have something to show."""
    for name, board in BOARDS.items():
        system.ops.put(f"/v1/boards/{name}", json=board).raise_for_status()
    for name, rule in RULES.items():
        system.ops.put(f"/v1/alerts/{name}", json=rule).raise_for_status()
    hook = {"address": "http://127.0.0.1:9/oncall"}
    system.ops.put("/v1/destinations/oncall", json=hook).raise_for_status()
    for name, where in (("fast_cars", "speed_kmh > 50"), ("every_position", None)):
        delivery = {"streams": [POSITION], "where": where, "url": "http://127.0.0.1:9/hook"}
        answer = system.ops.put(f"/v1/deliveries/{name}", json=delivery)
        if answer.status_code != httpx.codes.PRECONDITION_FAILED:  # of a run before
            answer.raise_for_status()
    for count, prefix in ((40, "shed-"), (1, "boiler-")):
        claim = {"count": count, "prefix": prefix}
        system.ops.post("/v1/claims", json=claim).raise_for_status()
    devices = {"devices": ["boiler-1", "boiler-2"], "replace": True}
    system.ops.post("/v1/credentials", json=devices).raise_for_status()
    note = {"note": "Serviced in October; its clock runs ahead", "groups": ["yellow_line"]}
    system.ops.put(f"/v1/devices/{EVENTS_DEVICE}/note", json=note).raise_for_status()
    for device in ("car-07", "car-12"):
        of_line = {"note": "", "groups": ["yellow_line"]}
        system.ops.put(f"/v1/devices/{device}/note", json=of_line).raise_for_status()
    send(system, "kitchen", "kitchen_climate", {"temperature": 21.4, "humidity": 48})
    send(system, "attic", "attic_climate", {"temperature": 11.4})
    for stream in ("kitchen_climate", "attic_climate"):
        path = f"/v1/streams/{stream}"
        until(lambda path=path: system.ops.get(path).status_code == 200, f"{stream} is there")
    system.ops.delete("/v1/streams/attic_climate").raise_for_status()
    units = {"temperature": {"unit": "Cel"}, "humidity": {"unit": "%"}}
    climate = {"description": "The kitchen, by hand", "fields": units}
    system.ops.patch("/v1/streams/kitchen_climate", json=climate).raise_for_status()
    send(system, "kitchen", "kitchen_climate", {"temperature": "warm", "humidity": 47})
    verdict = lambda: system.ops.get("/v1/faults").json()["verdict"]  # noqa: E731
    until(lambda: verdict() is not None, "the ledger counts")
    for kind, target in (("kill", "bridge-1"), ("cut", "devices"), ("freeze", "sequencer-1")):
        order = {"kind": kind, "target": target}
        system.ops.post("/v1/faults", json=order).raise_for_status()
        until(lambda: system.ops.get("/v1/faults").json()["faults"][0]["over_at"], "it is over")


def send(system: System, device: str, stream: str, reading: dict[str, Any]) -> None:
    """One reading, by the command; whether it is refused is seen on the page."""
    command = [sys.executable, "-m", "edgewake.deploy.cli", "send", device, stream]
    environment = os.environ | {"EDGEWAKE_DATA": str(system.data)}
    subprocess.run([*command, json.dumps(reading)], env=environment, check=False, timeout=60)


@contextmanager
def reader(system: System) -> Iterator[None]:
    """A client that reads, for the screen of clients."""
    url = f"{system.access}/v1/streams/vehicle_position/events"
    with httpx.stream(
        "GET", url, params={"where": "speed_kmh > 40"}, timeout=PATIENCE_S
    ) as response:
        response.raise_for_status()
        yield


def take(browser: Browser, system: System, names: Sequence[str], link: str) -> None:
    """All pictures of these screens."""
    FOLDER.mkdir(exist_ok=True)
    for size, (width, height) in SIZES.items():
        context = browser.new_context(
            viewport={"width": width, "height": height}, locale="en-GB", timezone_id="Europe/Berlin"
        )
        page = context.new_page()
        page.goto(link if size == "desk" else system.link())
        page.wait_for_selector("nav#rail a")
        home, token = page.url.split("#")[0], token_of(system)
        for name in names:
            screen = SCREENS[name]
            if screen.is_login:
                log_out(page)
            page.goto("about:blank")  # what it asked for before does not count
            start = system.access if screen.is_town else home
            page.goto(start + screen.address.replace("{token}", token))
            page.wait_for_function(screen.is_full, timeout=PATIENCE_S * 1000, polling=200)
            if screen.press:
                page.get_by_role("button", name=screen.press, exact=True).click()
            if screen.is_done:
                page.wait_for_function(screen.is_done, timeout=PATIENCE_S * 1000, polling=200)
            page.wait_for_timeout(1500)  # charts and maps are drawn in the next frames
            for theme in THEMES:
                show(page, theme)
                write(page, FOLDER / f"{name}-{size}-{theme}.webp")
            if screen.is_login:
                page.goto(system.link())
                page.wait_for_selector("nav#rail a")
        context.close()


def log_out(page: Page) -> None:
    """The session's cookie goes, as at the end of a session."""
    page.context.clear_cookies()


def token_of(system: System) -> str:
    """The token of a frame whose way is shown."""
    asked = {"device": EVENTS_DEVICE, "stream": POSITION, "seq": 30}
    found = system.ops.get("/v1/acks", params=asked).raise_for_status().json()
    return str(found["token"])


def show(page: Page, theme: str) -> None:
    """In this theme, as the button does it."""
    page.evaluate(
        """(theme) => {
          document.documentElement.dataset.theme = theme;
          document.dispatchEvent(new Event("themechange"));
        }""",
        theme,
    )
    page.wait_for_timeout(400)


def write(page: Page, path: Path) -> None:
    """WebP, as the browser makes it."""
    session = page.context.new_cdp_session(page)
    asked = {"format": "webp", "quality": QUALITY}
    path.write_bytes(base64.b64decode(session.send("Page.captureScreenshot", asked)["data"]))
    session.detach()
    sys.stdout.write(f"{path.name}: {path.stat().st_size / 1024:.0f} KB\n")


def main() -> None:
    """Start what is needed and take them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SCREENS)}")
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--keep", type=Path, help="folder of data, for a second run")
    arguments = parser.parse_args()
    names = arguments.names or list(SCREENS)
    if unknown := sorted(set(names) - set(SCREENS)):
        parser.error(f"there is no screen {unknown[0]!r}; expected one of {', '.join(SCREENS)}")
    with (
        tempfile.TemporaryDirectory() as folder,
        running((arguments.keep or Path(folder)).resolve() / "data") as system,
    ):
        furnish(system)
        time.sleep(arguments.minutes * 60)
        with reader(system), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
            take(browser, system, names, system.link())
            browser.close()


def card(kind: str, place: tuple[int, int, int, int], **more: Any) -> dict[str, Any]:
    """Of a board."""
    x, y, w, h = place
    return {"kind": kind, "x": x, "y": y, "w": w, "h": h, **more}


POSITION: Final = "vehicle_position"
BOARDS: Final = {
    "town": {
        "title": "The town",
        "cards": [
            card("value", (0, 0, 3, 2), source=POSITION, field="speed_kmh", title="Speed"),
            card("text", (0, 2, 3, 1), text="Above 60 km/h in town: call the depot."),
            card(
                "chart",
                (3, 0, 6, 3),
                source=POSITION,
                field="speed_kmh",
                devices=[EVENTS_DEVICE, "car-07", "car-12"],
                title="Speed of the yellow line",
            ),
            card(
                "gauge",
                (9, 0, 3, 3),
                source=POSITION,
                field="battery_percent",
                title="Battery",
                low=0,
                high=100,
            ),
            card("map", (0, 3, 6, 6), source=POSITION, title="Vehicles"),
            card("top", (6, 3, 3, 4), source="top_streets", field="streets", title="Streets"),
            card("bars", (9, 3, 3, 4), source=POSITION, field="speed_kmh", title="Fastest now"),
            card(
                "state",
                (6, 7, 6, 2),
                source=POSITION,
                field="street",
                group="yellow_line",
                title="Where the yellow line is",
            ),
        ],
    },
    "this_machine": {
        "title": "This machine",
        "cards": [card("chart", (0, 0, 12, 4), source="host_metrics", field="cpu_percent")],
    },
}
RULES: Final = {
    "too_fast": {
        "text": "Faster than 50 km/h",
        "severity": "warning",
        "stream": POSITION,
        "when": "speed_kmh > 50",
        "until": "speed_kmh < 45",
        "value": "speed_kmh",
    },
    "broken": {"text": "A part or a query does not run", "problems": ["part", "query"]},
    "silent": {"text": "A vehicle is silent", "stream": POSITION, "silent_s": 120},
}

if __name__ == "__main__":
    main()
