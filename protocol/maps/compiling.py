"""Compiles a map file. Whatever would fail at a message is refused here, before the first one.

Pure but for the presets, which are files of this package.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, tzinfo
from typing import Any, Final

from edgewake.protocol.errors import ConfigError
from edgewake.protocol.frames.event_time import zone_of
from edgewake.protocol.maps import presets
from edgewake.protocol.maps.map_table import map_of
from edgewake.protocol.maps.names import device_name
from edgewake.protocol.maps.rule import MAPS_MAX, Map, Maps
from edgewake.protocol.maps.tables import Table, Wrong, line_of
from edgewake.protocol.maps.topic import overlap, reduced

FILE_BYTES_MAX: Final = 256 * 1024
"""The most bytes of a map file."""
DEVICES_MAX: Final = 10_000
"""The most entries of `[devices]`."""
HASH_DIGITS: Final = 12
OWN_FILTERS: Final = ("ew/v1/#", "ew/bridges/#", "/ew/v1/#")
"""Topics of Edgewake itself; maps do not apply to them."""
_ERRORS_MAX: Final = 20
"""The most errors that one refusal lists."""


def compile_maps(
    text: str,
    where: str = "maps",
    *,
    zone: str = "UTC",
    needs_names: bool = False,
    load_preset: Callable[[str], str] = presets.text_of,
) -> Maps:
    """Compiles a map file. Raises ConfigError with file, line, key, and what was expected.

    `zone` applies to times without one, where the file names none. With `needs_names` each map must
    give device and stream, as at a bridge.
    """
    if len(text.encode("utf-8", "replace")) > FILE_BYTES_MAX:
        raise ConfigError(f"{where}: expected at most {FILE_BYTES_MAX} bytes")
    reader = _Reader(zone, load_preset)
    reader.read(text, where, base=None)
    return reader.maps(where, needs_names=needs_names)


def compile_presets(
    names: Sequence[str], where: str = "presets", *, zone: str = "UTC", needs_names: bool = False
) -> Maps:
    """Compiles presets without a file of one's own. Raises ConfigError."""
    listed = ", ".join('"' + name.replace('"', "") + '"' for name in names)
    return compile_maps(f"presets = [{listed}]\n", where, zone=zone, needs_names=needs_names)


class _Reader:
    """Reads one file and what it includes."""

    def __init__(self, zone: str, load_preset: Callable[[str], str]) -> None:
        self._zone = zone
        self._load_preset = load_preset
        self._maps: list[Map] = []
        self._of_presets: list[Map] = []
        self._renamed: dict[str, str] = {}
        self._errors: list[str] = []
        self._hash = hashlib.sha256(zone.encode())

    def maps(self, where: str, *, needs_names: bool) -> Maps:
        """Returns the maps in the order in which they are tried. Raises ConfigError.

        Among the presets those come first whose topics begin with a word:
        `homeassistant/sensor/…` is Home Assistant's, also where ESPHome's `+/sensor/…` stands
        before it.
        """
        self._of_presets.sort(key=lambda one: one.topic.filter.startswith("+"))
        self._maps += self._of_presets
        self._of_presets = []
        if not self._maps and not self._errors:
            self._errors.append(f"{where}: expected at least one [[map]], or presets = [...]")
        if len(self._maps) > MAPS_MAX:
            self._errors.append(f"{where}: {len(self._maps)} maps: expected at most {MAPS_MAX}")
        if needs_names:
            for one in self._maps:
                self._check_names(one, where)
        filters = reduced([one.topic.filter for one in self._maps])
        if self._errors:
            raise ConfigError("\n".join(self._errors[:_ERRORS_MAX]))
        return Maps(tuple(self._maps), self._hash.hexdigest()[:HASH_DIGITS], filters, self._renamed)

    def _check_names(self, one: Map, where: str) -> None:
        for own in OWN_FILTERS:
            if overlap(one.topic.filter, own):
                self._errors.append(
                    f"{where}: [[map]] {one.name!r}: topic: {one.topic.filter!r} takes topics of "
                    "Edgewake itself (ew/v1/…), which would come twice: expected a first or second "
                    "level that is a word"
                )
                return
        if one.is_ignored:
            return
        for key, value in (("device", one.device), ("stream", one.stream)):
            if value is None:
                self._errors.append(
                    f"{where}: [[map]] {one.name!r}: {key} is missing: at a bridge each map says "
                    f'it, e.g. {key} = "{{device}}" or {key} = "plugs"'
                )

    def read(self, text: str, where: str, *, base: str | None, is_preset: bool = False) -> None:
        """Reads one file and collects its errors."""
        maps = self._of_presets if is_preset else self._maps
        self._hash.update(f"\0{base}\0{text}".encode("utf-8", "surrogatepass"))
        try:
            top = Table(tomllib.loads(text))
        except ValueError as error:
            self._errors.append(f"{where}: not TOML: {error}")
            return
        except RecursionError:
            self._errors.append(f"{where}: not TOML: nested too deep")
            return
        try:
            zone = _zone(top, self._zone)
            own_base = top.get("base", str)
            base = base or own_base
            top.get("about", str)
            rows = top.get("map", list, default=[])
            wanted = top.get("presets", list, default=[])
            renamed = top.get("devices", dict, default={})
            top.done()
            self._rename(renamed)
        except Wrong as error:
            self._say(error, text, where, 0)
            return
        for number, row in enumerate(rows, 1):
            try:
                if not isinstance(row, Mapping):
                    raise Wrong((), "expected tables [[map]]")
                maps.append(map_of(row, number, zone=zone, base=base))
            except Wrong as error:
                self._say(error, text, where, number)
        for one in wanted:
            self._include(one, where)

    def _rename(self, renamed: Mapping[str, Any]) -> None:
        if len(renamed) > DEVICES_MAX:
            raise Wrong(("devices",), f"expected at most {DEVICES_MAX} entries")
        for name, ours in renamed.items():
            if not isinstance(ours, str) or not ours or device_name(ours) != ours:
                raise Wrong(("devices", name), f"{ours!r}: expected 1-64 of A-Z a-z 0-9 . _ -")
        self._renamed |= renamed

    def _include(self, one: Any, where: str) -> None:
        try:
            if not isinstance(one, str | dict):
                raise Wrong(("presets",), f'{one!r}: expected "name" or {{ name, base }}')
            table = Table({"name": one} if isinstance(one, str) else one, ("presets",))
            name, base = table.get("name", str), table.get("base", str)
            table.done()
            text = self._load_preset(name or "")
        except Wrong as error:
            self._errors.append(f"{where}: {error}")
        except ValueError as error:
            self._errors.append(f"{where}: presets: {error}")
        else:
            self.read(text, f"{where}: preset {name}", base=base, is_preset=True)

    def _say(self, error: Wrong, text: str, where: str, number: int) -> None:
        line = line_of(text, number, error.where)
        place = f"{where}: line {line}" if line else where
        in_map = f"[[map]] {number}: " if number else ""
        self._errors.append(f"{place}: {in_map}{error}")


def _zone(top: Table, default: str) -> tzinfo:
    name = top.get("zone", str, default=default)
    try:
        return UTC if name == "UTC" else zone_of(name)
    except ValueError as error:
        raise top.wrong("zone", str(error)) from error
