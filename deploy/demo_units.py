"""Gives the fields of the demo's streams their units, which no reading says.

It is done once: a field that somebody decided, to whatever unit or none, is left as it is.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

from edgewake.protocol.clock import Clock

UNITS: Final[Mapping[str, Mapping[str, str]]] = {
    "vehicle_position": {
        "lat": "deg",
        "lon": "deg",
        "speed_kmh": "km/h",
        "heading_deg": "deg",
        "battery_percent": "%",
        "odometer_km": "km",
    },
    "host_metrics": {
        "cpu_percent": "%",
        "memory_percent": "%",
        "memory_used_mib": "MiBy",
        "disk_percent": "%",
    },
}
"""Stream → field → UCUM symbol."""
AGAIN_S: Final = 5.0
"""Seconds until streams that have no reading yet are looked for again."""
TIMEOUT_S: Final = 5.0


def missing(fields: Mapping[str, Mapping[str, Any]], units: Mapping[str, str]) -> dict[str, str]:
    """Returns the units to give: of fields that are there and that nobody decided."""
    return {
        name: unit
        for name, unit in units.items()
        if name in fields and not fields[name]["unit"] and not fields[name]["revision"]
    }


async def give(ops_url: str, key: str, clock: Clock) -> None:
    """Gives each stream its units as soon as it is there, by the operations API."""
    waiting = set(UNITS)
    while waiting:
        for stream in sorted(waiting):
            if await asyncio.to_thread(_give, ops_url, key, stream):
                waiting.discard(stream)
        await clock.sleep(AGAIN_S)


def _give(ops_url: str, key: str, stream: str) -> bool:
    """Is it done? What the API does not answer is asked again."""
    url = f"{ops_url}/v1/streams/{stream}"
    try:
        units = missing(_asked(url, key)["fields"], UNITS[stream])
        if units:
            _asked(url, key, {"fields": {name: {"unit": unit} for name, unit in units.items()}})
    except (OSError, ValueError, LookupError):
        return False
    return True


def _asked(url: str, key: str, change: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Raises OSError, urllib.error.HTTPError among them, and ValueError."""
    request = urllib.request.Request(  # noqa: S310  (our own address)
        url,
        data=None if change is None else json.dumps(change).encode(),
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
        method="GET" if change is None else "PATCH",
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
        found: dict[str, Any] = json.load(answer)
    return found
