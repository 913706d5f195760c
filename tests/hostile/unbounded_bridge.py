"""A bridge as it was before devices had shares: `python -m tests.hostile.unbounded_bridge --config
FILE`. The control of rows whose bounds nobody can configure.
"""

from __future__ import annotations

from edgewake.cloud.bridge.admission import allowance, catalogue
from edgewake.cloud.bridge.cli import bridge
from edgewake.protocol import mqtt

WITHOUT_END = 10**9

if __name__ == "__main__":
    allowance.STATUSES_PER_S = float(WITHOUT_END)  # type: ignore[misc]
    catalogue.DEVICE_STREAMS_MAX = WITHOUT_END  # type: ignore[misc]
    mqtt.PROPERTIES_BYTES_MAX = WITHOUT_END  # type: ignore[misc]
    bridge()
