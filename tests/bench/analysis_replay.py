"""How many rows a second one process of `edgewake replay --speed max` brings through a broker and a
bridge into Kafka, acknowledged.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.services import part, run_mosquitto

ROWS: Final = 300_000
DEVICES: Final = 20
RUN_S: Final = 600


def rows_per_s(folder: Path, bootstrap: str, stream: str) -> float:
    """From the start of the command to its end, which comes when each reading is acknowledged;
    AssertionError where one is not.
    """
    folder.mkdir(parents=True)
    file = folder / "rows.csv"
    lines = (
        f"{1_790_000_000 + i // DEVICES},bus-{i % DEVICES},{i % 997 / 10},{i % 13},"
        f"{i % 101 / 100}\n"
        for i in range(ROWS)
    )
    file.write_text("time,bus,speed,gear,load\n" + "".join(lines))
    with run_mosquitto(folder / "mosquitto") as broker:
        config = folder / "bridge.toml"
        config.write_text(f'[mqtt]\nport = {broker.port}\n[kafka]\nbootstrap = "{bootstrap}"\n')
        with part("bridge", config, folder / "bridge.log") as bridge:
            bridge.wait_for('"event":"part.ready"')
            options = [
                "--stream",
                stream,
                "--device-field",
                "bus",
                "--speed",
                "max",
                "--times",
                "recorded",
                "--port",
                str(broker.port),
            ]
            began_s = time.monotonic()
            command = [sys.executable, "-m", "edgewake.deploy.cli", "replay", str(file), *options]
            done = subprocess.run(
                command, check=False, capture_output=True, text=True, timeout=RUN_S
            )
            took_s = time.monotonic() - began_s
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"sent {ROWS}, acked {ROWS}, rejected 0, unacked 0", done.stdout), done.stdout
    return ROWS / took_s
