"""The client: follows streams over SSE from its own position, across failures.

    from edgewake.edge.client import Follower, Subscription

    async for received in Follower(["http://127.0.0.1:8700"],
    Subscription(streams=("vehicle_position",)), cursor=saved).events():
        process(received.fields)
        save(received.cursor)  # after processing: the next run begins with the event after it

`Follower` takes a `Subscription`, or a `Published` by its name, several servers, `options` (up to
10,000 devices, a share of them, conflation, a rate), `start`, `on_gap`, `checkpoints` and
`credentials` (a token, or a `TokenFile` that is renewed; headers, certificates); it gives
`Received` (kind, text, fields, cursor), reports `Connected` and `Lost` to `on_notice`, and raises
`FollowError` where every server refuses.
`Parser` is the SSE parser alone: bytes in, events out.

A program that nobody can call, and that need not hold a stream open, is woken through a relay
(docs/push.md):

    sleeper = Sleeper(["http://127.0.0.1:8703"], subscription, place=Path("lease.json"))
    woken = await sleeper.sleep(cursor)  # then read on from the cursor

`Sleeper` takes a `Subscription` or a `Published`, several proxies, `options` (up to 1,000 devices,
a share of them), a `WakePolicy`, `ttl_s` and `credentials`; it gives a `WakeUp`
(count, gap, events, or why its lease has ended), and raises `FollowError` where it is refused.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgewake.edge.client.asked import Options, Published
    from edgewake.edge.client.credentials import Credentials, TokenFile
    from edgewake.edge.client.follow import Connected, Follower, FollowError, Lost, Received
    from edgewake.edge.client.lease import WakeUp
    from edgewake.edge.client.sleeper import Sleeper
    from edgewake.edge.client.sse import Parser
    from edgewake.protocol.leases.lease import Subscription, WakePolicy

__all__ = [
    "Connected",
    "Credentials",
    "FollowError",
    "Follower",
    "Lost",
    "Options",
    "Parser",
    "Published",
    "Received",
    "Sleeper",
    "Subscription",
    "TokenFile",
    "WakePolicy",
    "WakeUp",
]

_MODULES = {
    "Options": "edgewake.edge.client.asked",
    "Published": "edgewake.edge.client.asked",
    "Credentials": "edgewake.edge.client.credentials",
    "Parser": "edgewake.edge.client.sse",
    "Sleeper": "edgewake.edge.client.sleeper",
    "Subscription": "edgewake.protocol.leases.lease",
    "TokenFile": "edgewake.edge.client.credentials",
    "WakePolicy": "edgewake.protocol.leases.lease",
    "WakeUp": "edgewake.edge.client.lease",
}


def __getattr__(name: str) -> object:
    # At the first use: `edgewake --help` imports this package too and needs none of it.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "edgewake.edge.client.follow")), name)
