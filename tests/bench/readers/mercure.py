"""Another rival: Mercure's hub, fed by a publisher that reads the same Kafka topic.

`python -m tests.bench.readers.mercure PROGRAM BOOTSTRAP TOPIC PORT FOLDER` starts it and publishes
until killed. Each piece of 20 ms is one update, so it writes as often as we do; nobody is asked for
a token, nothing is logged, and its transport in memory keeps no history.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import httpx
import jwt

from tests.bench.sse_nchan import pieces

KEY: Final = "of-a-benchmark-on-this-machine-alone"
TOPIC: Final = "one"
PATH: Final = "/.well-known/mercure"


def main(program: str, bootstrap: str, topic: str, port: int, folder: Path) -> None:
    """Serve and publish until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    folder.mkdir(parents=True, exist_ok=True)
    words = ["--addr", f"127.0.0.1:{port}", "--jwt-key", KEY, "--allow-anonymous"]
    words += ["--transport-url", "local://local", "--write-timeout", "0s"]
    server = subprocess.Popen(
        [program, *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    print(f"mercure {server.pid}", flush=True)
    token = jwt.encode({"mercure": {"publish": ["*"]}}, KEY, "HS256")
    headers = {"Authorization": f"Bearer {token}"}
    try:
        with httpx.Client(timeout=10, headers=headers) as publisher:
            for lines in pieces(bootstrap, topic):
                if server.poll() is not None:
                    return
                # Lines of one update get a `data:` each, so readers see one event of many objects:
                # they count the objects.
                update = {"topic": TOPIC, "data": b"\n".join(lines).decode()}
                publisher.post(f"http://127.0.0.1:{port}{PATH}", data=update).raise_for_status()
    finally:
        server.terminate()
        server.wait(10)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), Path(sys.argv[5]))
