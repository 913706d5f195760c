"""Another rival: Centrifugo, fed by a publisher that reads the same Kafka topic.

`python -m tests.bench.readers.centrifugo PROGRAM BOOTSTRAP TOPIC PORT FOLDER` starts it and
publishes until killed. Each piece of 20 ms is one publication of a list, so it writes as often as
we do; nobody is asked for a token, and it keeps no history.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from tests.bench.sse_nchan import pieces


def settings(port: int) -> dict[str, Any]:
    """Its configuration: everybody may subscribe and publish, and a slow client may wait."""
    return {
        "http_server": {"address": "127.0.0.1", "port": str(port)},
        "client": {"insecure": True, "allowed_origins": ["*"], "queue_max_size": 64 << 20},
        "http_api": {"insecure": True},
        "uni_sse": {"enabled": True},
        "log": {"level": "error"},
    }


def main(program: str, bootstrap: str, topic: str, port: int, folder: Path) -> None:
    """Serve and publish until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "config.json"
    config.write_text(json.dumps(settings(port)))
    server = subprocess.Popen([program, "--config", str(config)])
    print(f"centrifugo {server.pid}", flush=True)
    try:
        with httpx.Client(timeout=10) as publisher:
            for lines in pieces(bootstrap, topic):
                if server.poll() is not None:
                    return
                body = b'{"channel":"one","data":[%b]}' % b",".join(lines)
                publisher.post(
                    f"http://127.0.0.1:{port}/api/publish", content=body
                ).raise_for_status()
    finally:
        server.terminate()
        server.wait(10)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), Path(sys.argv[5]))
