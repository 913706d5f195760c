"""Units: a field's number in another unit, under the same name.

Units are UCUM symbols (Cel, [degF], km/h). A value that is not a number goes on as it is, with a
remark: a wrong unit would be worse than a text. A missing value stays missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.processor import Remark, State, Stepped, number


@dataclass(frozen=True, slots=True)
class Unit:
    """value · factor + offset is the same in the base unit of the dimension."""

    dimension: str
    factor: float
    offset: float = 0.0


UNITS: Final[Mapping[str, Unit]] = {
    "m/s": Unit("speed", 1.0), "km/h": Unit("speed", 1 / 3.6), "[mi_i]/h": Unit("speed", 0.44704),
    "[kn_i]": Unit("speed", 1852 / 3600),
    "m": Unit("length", 1.0), "km": Unit("length", 1000.0), "cm": Unit("length", 0.01),
    "mm": Unit("length", 0.001),
    "[ft_i]": Unit("length", 0.3048), "[in_i]": Unit("length", 0.0254),
    "[mi_i]": Unit("length", 1609.344),
    "[nmi_i]": Unit("length", 1852.0),
    "K": Unit("temperature", 1.0), "Cel": Unit("temperature", 1.0, 273.15),
    "[degF]": Unit("temperature", 5 / 9, 459.67 * 5 / 9),
    "Pa": Unit("pressure", 1.0), "hPa": Unit("pressure", 100.0), "kPa": Unit("pressure", 1000.0),
    "bar": Unit("pressure", 1e5),
    "[psi]": Unit("pressure", 6894.757293168), "atm": Unit("pressure", 101325.0),
    "mm[Hg]": Unit("pressure", 133.322387415),
    "s": Unit("time", 1.0), "ms": Unit("time", 0.001), "min": Unit("time", 60.0),
    "h": Unit("time", 3600.0), "d": Unit("time", 86400.0),
    "J": Unit("energy", 1.0), "kJ": Unit("energy", 1000.0), "W.h": Unit("energy", 3600.0),
    "kW.h": Unit("energy", 3.6e6),
    "W": Unit("power", 1.0), "kW": Unit("power", 1000.0), "MW": Unit("power", 1e6),
    "[HP]": Unit("power", 745.69987158227),
    "g": Unit("mass", 0.001), "kg": Unit("mass", 1.0), "t": Unit("mass", 1000.0),
    "[lb_av]": Unit("mass", 0.45359237),
    "L": Unit("volume", 0.001), "m3": Unit("volume", 1.0), "mL": Unit("volume", 1e-6),
    "[gal_us]": Unit("volume", 0.003785411784),
    "deg": Unit("angle", 1.0), "rad": Unit("angle", 57.29577951308232),
    "%": Unit("ratio", 0.01), "1": Unit("ratio", 1.0), "[ppm]": Unit("ratio", 1e-6),
    "V": Unit("voltage", 1.0), "mV": Unit("voltage", 0.001), "kV": Unit("voltage", 1000.0),
    "A": Unit("current", 1.0), "mA": Unit("current", 0.001),
    "By": Unit("data", 1.0), "kBy": Unit("data", 1000.0), "MiBy": Unit("data", 1048576.0),
    "bit": Unit("data", 0.125),
}  # fmt: skip


def check_change(unit: str, to: str) -> None:
    """Raises ValueError where one cannot become the other."""
    for name in (unit, to):
        if name not in UNITS:
            raise ValueError(f"unknown unit {name!r}: expected one of {' '.join(UNITS)}")
    if UNITS[unit].dimension != UNITS[to].dimension:
        raise ValueError(f"{unit} is a {UNITS[unit].dimension}, {to} is a {UNITS[to].dimension}")


class Units:
    """The step. It has no state."""

    initial: State = None

    def __init__(self, changes: Mapping[str, tuple[str, str]]) -> None:
        """Field → (unit it has, unit it gets)."""
        self._changes = {field: (UNITS[unit], UNITS[to]) for field, (unit, to) in changes.items()}

    def step(self, state: State, reading: Reading) -> Stepped:
        t, fields = reading
        changed, remarks = dict(fields), []
        for name, (unit, to) in self._changes.items():
            value = number(fields.get(name))
            if value is not None:
                changed[name] = (value * unit.factor + unit.offset - to.offset) / to.factor
            elif fields.get(name) is not None:
                remarks.append(Remark.NOT_A_NUMBER)
        return Stepped(state, ((t, changed),), remarks)
