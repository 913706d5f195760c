"""An access server whose bounds of sockets are other ones, so that a test can show what happens
without them: `EDGEWAKE_TEST_BOUNDS` holds them as JSON. `answers_all_pings`: those of a client that
does not read, too, as uvicorn does.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import orjson
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from edgewake.cloud.access import run
from edgewake.cloud.access.sockets import protocol, socket

for name, value in orjson.loads(os.environ["EDGEWAKE_TEST_BOUNDS"]).items():
    if name == "answers_all_pings":
        protocol.SocketProtocol.handle_ping = WSProtocol.handle_ping  # type: ignore[method-assign]
    elif hasattr(socket, name):
        setattr(socket, name, value)
    else:
        raise SystemExit(f"no bound {name}")
run.main(Path(sys.argv[1]), host=None, port=None, verbose=False)
