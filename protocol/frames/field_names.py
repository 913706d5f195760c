"""Names of fields as devices write them, made legal: one rule for all ways in. Pure.

`DS18B20-1` becomes `DS18B20_1`, `Außen.Temperatur` becomes `Aussen_Temperatur`, a name of the
envelope gets a `_` behind it (`mode_`). A name inside of others is known by its path, joined by
dots, and has `_` between. Where two names would become one, the later one gets a suffix that is
made of its own path, so it is the same wherever and whenever it is made. A field that a topic, a
map or a source adds keeps its name, and the device's own of that name gets a `_` behind it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Container, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from edgewake.protocol.names import FIELD_CHARS_MAX, RESERVED_FIELDS, is_field

SUFFIX_CHARS: Final = 8
"""The length of a suffix, a CRC, in characters: of a thousand names that become one, two are alike
once in ten thousand streams."""
NAMES_MAX: Final = 1_000
"""Names that are remembered per stream. Further ones are told apart by their suffix, which needs no
memory."""
ODD: Final = "_odd"
"""Suffix of the field that holds the text of a value of the wrong type."""
ODD_CHARS_MAX: Final = 200
"""Characters of such a text at an agent and in maps."""
PATH_CHARS_MAX: Final = 512
"""Characters of a path that its name is made of; its suffix is made of all."""
UNIT_CHARS_MAX: Final = 32
"""The most characters of a field's unit; the longest in use have about 20."""
WORDS_CHARS_MAX: Final = 64
"""The most characters of a field's label, and of its classes; longer ones are left out."""
_BASE_CHARS: Final = FIELD_CHARS_MAX - SUFFIX_CHARS - 1
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_]+")
_WRITTEN_OUT: Final = str.maketrans(
    {
        "ä": "ae",
        "ö": "oe",
        "ü": "ue",
        "Ä": "Ae",
        "Ö": "Oe",
        "Ü": "Ue",
        "ß": "ss",
        "µ": "u",
        "°": "deg",
    }
)


class Names:
    """The legal names of one stream, or of one object."""

    def __init__(self, known: Mapping[str, str] | None = None, *, own: Iterable[str] = ()) -> None:
        """`known`: path → name, from before; `own`: legal names that belong to themselves."""
        self._by_path = dict(known or {})
        self._taken = {name: path for path, name in self._by_path.items()} | {
            name: name for name in own
        }

    @classmethod
    def of_object(cls, body: Mapping[str, object]) -> Names:
        """The names of one object: its legal names stay."""
        return cls(own=(name for name in body if is_field(name)))

    def of(self, path: str) -> str:
        """Return the legal name of a path, and remember it."""
        known = self._by_path.get(path)
        if known is not None:
            return known
        name = form(path)
        is_altered = name != path.replace(".", "_")
        if self._taken.get(name, path) != path or (is_altered and len(self._by_path) >= NAMES_MAX):
            name = with_suffix(path)
        if len(self._by_path) < NAMES_MAX:
            self._by_path[path] = name
            self._taken[name] = path
        return name

    def keep_own(self, names: Iterable[str]) -> None:
        """Reserve an object's legal names, unless another path had one before."""
        for name in names:
            if is_field(name):
                self.of(name)

    def __len__(self) -> int:
        return len(self._by_path)

    def known(self) -> Mapping[str, str]:
        """Path → name."""
        return self._by_path


def put_over(body: dict[str, Any], fields: Mapping[str, Any]) -> None:
    """Put fields into a body; they keep their names.

    Another value that has one of their names in the body gets a `_` behind its own, as one that is
    called like the envelope does.
    """
    before = {name: body.pop(name) for name in fields if name in body}
    body.update(fields)
    for name, value in before.items():
        if value is not None and value != fields[name]:
            body[free_name(name, body)] = value


def free_name(name: str, taken: Container[str]) -> str:
    """The name, with as many `_` behind it as it needs to be none of those taken."""
    while name in taken:
        name += "_"
    return name


@lru_cache(maxsize=2048)
def form(path: str) -> str:
    """A legal name that resembles a path.

    A long path gets its hash as a suffix, for its end is cut off.
    """
    name = path.replace(".", "_")
    if is_field(name):
        return name
    legal = _legal(name)
    return legal if len(legal) <= FIELD_CHARS_MAX else with_suffix(path)


def with_suffix(path: str) -> str:
    """The name with a suffix that makes it unique to its path."""
    crc = zlib.crc32(path.encode("utf-8", "surrogatepass"))
    return f"{_legal(path)[:_BASE_CHARS].rstrip('_') or 'field'}_{crc:0{SUFFIX_CHARS}x}"


def _legal(text: str) -> str:
    import unicodedata  # a megabyte: a small device pays for it when a name needs it

    plain = (
        unicodedata.normalize("NFKD", text[:PATH_CHARS_MAX].translate(_WRITTEN_OUT))
        .encode("ascii", "ignore")
        .decode()
    )
    legal = _ILLEGAL.sub("_", plain).strip("_") or "field"
    if legal[0].isdigit():
        legal = "_" + legal
    return legal + "_" if legal in RESERVED_FIELDS else legal
