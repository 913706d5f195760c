"""Units as people write them, for the codes and spellings that machines send. Pure.

`Cel` (UCUM, SenML), `degC` and `°C` are one unit, and so they are one word in the catalogue. Only
spellings of one unit are here: nothing is converted, and what the table lacks stays as it was said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_SPELLINGS: Final = {
    "°C": ("Cel", "degC", "deg C", "deg_C", "℃", "ºC", "° C", "celsius", "degrees celsius"),
    "°F": ("[degF]", "degF", "deg F", "deg_F", "℉", "ºF", "° F", "fahrenheit"),
    "°": ("deg", "degree", "degrees", "º"),
    "%": ("%RH", "percent", "pct", "% RH", "%rH"),
    "Ω": ("Ohm", "ohm", "Ohms", "ohms", "\u2126"),
    "kΩ": ("kOhm", "kohm", "k\u2126"),
    "lx": ("lux", "Lux"),
    "W": ("watt", "Watt", "watts"),
    "Wh": ("W.h", "W*h", "W·h"),
    "W·min": ("W.min", "W*min", "Wmin"),
    "kWh": ("kW.h", "kW*h", "kW·h", "kwh", "KWh"),
    "MWh": ("MW.h", "MW*h", "MW·h"),
    "VA": ("V.A", "V*A", "V·A"),
    "var": ("VAR", "VAr", "Var"),
    "Ah": ("A.h", "A*h", "A·h"),
    "V": ("volt", "Volt", "volts"),
    "A": ("ampere", "amps", "amp"),
    "Hz": ("hertz", "Hertz", "hz"),
    "rpm": ("RPM", "r/min", "{rpm}", "rev/min", "1/min{rev}"),
    "m²": ("m2", "m^2"),
    "m³": ("m3", "m^3", "cbm"),
    "m³/h": ("m3/h", "m^3/h", "m3/hr", "m³/hr"),
    "m/s²": ("m/s2", "m/s^2"),
    "W/m²": ("W/m2", "W/m^2"),
    "µg/m³": ("ug/m3", "ug/m^3", "ug/m³", "µg/m3", "μg/m³", "μg/m3"),
    "mg/m³": ("mg/m3", "mg/m^3"),
    "µm": ("um", "μm"),
    "µs": ("us", "μs"),
    "µT": ("uT", "μT"),
    "µS/cm": ("uS/cm", "μS/cm"),
    "L": ("l", "litre", "liter", "litres", "liters"),
    "L/min": ("l/min",),
    "L/h": ("l/h",),
    "km/h": ("kph", "kmh", "km/hr", "kmph"),
    "mph": ("[mi_i]/h", "mi/h", "miles/h"),
    "ppm": ("[ppm]", "PPM"),
    "ppb": ("[ppb]", "PPB"),
    "psi": ("[psi]", "PSI"),
    "inHg": ("[in_i'Hg]", "in Hg"),
    "ft": ("[ft_i]", "feet"),
    "in": ("[in_i]", "inch", "inches"),
    "dBm": ("dB[mW]", "dB(mW)"),
    "pH": ("[pH]", "PH"),
    "h": ("hour", "hours", "hr", "hrs"),
    "s": ("sec", "second", "seconds"),
    "min": ("minute", "minutes"),
    "d": ("day", "days"),
    "B": ("By", "byte", "bytes"),
}
"""Unit as it is written → its other spellings: codes of UCUM and SenML, and what programs write.
A letter's case is part of a unit (`mW`, `MW`), so each spelling is here as it is meant."""
_WRITTEN: Final[Mapping[str, str]] = {
    other: written for written, others in _SPELLINGS.items() for other in others
}


def as_written(unit: str) -> str:
    """How people write a unit, which is known by that one spelling; another one stays as it is."""
    unit = unit.strip()
    return _WRITTEN.get(unit, unit)
