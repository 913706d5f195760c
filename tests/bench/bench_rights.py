"""What rights cost: to find out who somebody is when something is opened, to look each second
whether that still holds for all that is open, and to cut an event to what may be seen.

`python -m tests.bench.bench_rights [--runs 3] [--json FILE]`. One process, processor time of its
thread. "the first time" checks the signature of a token that was never seen; "again" is a token
that was. The look of a second is measured with 5,000 streams open, each by a token of its own, two
looks a second as a server makes them: with nothing changed, and with the file of what is taken back
changed, after which all are checked. An event has eight fields, of which four are seen.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import orjson

from edgewake.cloud.log.decode import DATA, Event
from edgewake.cloud.log.subscription import Source, plan
from edgewake.cloud.rights.config import GrantConfig, IssuerConfig, RightsConfig, RoleConfig
from edgewake.cloud.rights.principal import Action
from edgewake.cloud.rights.rights import LOOK_S, Rights
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.leases.lease import Subscription
from tests.bench.figures import Found, run
from tests.rights.forge import AUDIENCE, ISSUER, Maker, key_set, write

LIMITS: Final = """
A token that was never seen costs the check of its signature by OpenSSL (of the whole a quarter with
RS256, three fifths with ES256, seven tenths with EdDSA) and PyJWT's reading of it. That is paid
once: from then on a token is known by its digest, until it expires or is taken back.
"""
TOKENS: Final = 500
STREAMS: Final = 5_000
LOOKS: Final = 200
EVENTS: Final = 20_000
OPEN_US: Final = 100.0
CORE_PERCENT: Final = 1.0
ALGORITHMS: Final = ("RS256", "ES256", "EdDSA")


def measure(folder: Path, runs: int) -> Found:
    """All figures."""
    found: Found = defaultdict(list)
    for number in range(runs):
        asyncio.run(_one(folder / str(number), found))
    return found


async def _one(folder: Path, found: Found) -> None:
    folder.mkdir()
    makers = {name: Maker(name, name) for name in ALGORITHMS}
    revoked = write(folder / "revoked", "")
    role = RoleConfig(
        grants=(GrantConfig(streams=("s",), devices=("$device",), fields=("a", "b", "c", "d")),)
    )
    issuer = IssuerConfig(
        issuer=ISSUER,
        audience=AUDIENCE,
        jwks_file=write(folder / "keys.json", key_set(*makers.values())),
        role="owner",
    )
    config = RightsConfig(roles={"owner": role}, issuers=(issuer,), revoked_file=revoked)
    rights = Rights(config, SystemClock())
    expires_s = time.time() + 3600
    for name, maker in makers.items():
        tokens = [
            maker.token(sub=f"{name}-{n}", device=f"car-{n}", exp=expires_s) for n in range(TOKENS)
        ]
        for how in ("the first time", "again"):
            began = time.thread_time()
            for token in tokens:
                await rights.principal(token)
            us = (time.thread_time() - began) / TOKENS * 1e6
            found[f"check of a token at open, {name}, {how}", "µs", OPEN_US].append(us)
    maker = makers["ES256"]
    for number in range(STREAMS):
        token = maker.token(sub=f"s-{number}", device=f"car-{number}", exp=expires_s)
        rights.watch(await rights.principal(token), _unexpected)
    for what, change in (
        ("nothing changed", lambda _: None),
        ("what is taken back changed", lambda n: write(revoked, f"jti none-{n}\n")),
    ):
        percent = _percent_of_a_core(rights, change)
        name = f"looks at {STREAMS} streams, {what}"
        found[name, "% of a core", CORE_PERCENT if what == "nothing changed" else None].append(
            percent
        )
    reader = await rights.principal(maker.token(device="car-7", exp=expires_s))
    scope = reader.scope(Action.READ, "s")
    for what, seen in (("cut to four fields", scope), ("seen whole", None)):
        found[f"an event of eight fields, {what}", "µs", None].append(_event_us(seen))


def _percent_of_a_core(rights: Rights, change: Callable[[int], Any]) -> float:
    used = 0.0
    for number in range(LOOKS):
        change(number)
        began = time.thread_time()
        rights.look()
        used += time.thread_time() - began
    return used / LOOKS / LOOK_S * 100


def _event_us(scope: Any) -> float:
    opened = plan(Subscription(streams=("s",)), [Source("s", "ew.s.s", False, "id", 1)], [scope])
    fields: dict[str, Any] = {"stream": "s", "device": "car-7", "epoch": 1, "seq": 2, "t": 3}
    fields |= dict.fromkeys("abcdefgh", 1.5)
    event = Event(DATA, fields, orjson.dumps(fields))
    began = time.thread_time()
    for _ in range(EVENTS):
        assert opened.show(event, 0) is not None
    return (time.thread_time() - began) / EVENTS * 1e6


def _unexpected(why: object) -> None:
    raise AssertionError(f"nothing expires here: {why}")


if __name__ == "__main__":
    run(measure, __doc__, each_alone=True)
