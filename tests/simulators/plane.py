"""The reverse of `town.to_degrees`, to say where a reading lies in the town."""

from __future__ import annotations

from edgewake.simulators import town


def to_plane(lat: float, lon: float) -> town.Point:
    """Metres east and north of the town's origin."""
    return (lon - town.ORIGIN_LON) * town._M_PER_LON, (lat - town.ORIGIN_LAT) * town._M_PER_LAT
