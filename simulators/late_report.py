"""Counts late readings of each query while a file is played, through the operations API.

It asks before and after.

A count may be of others that sent to the same stream meanwhile. Where the API is not known, or does
not answer, nothing is said.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from edgewake.protocol import installation
from edgewake.protocol.errors import ConfigError

ANSWER_S: Final = 5.0
WAIT_S: Final = 60.0
"""Seconds that queries may take until they have computed what was sent; then the report says that
it is not known yet."""
LOOK_S: Final = 1.0
LOOKS: Final = 12
"""Looks in a row at which nothing is left to compute and nothing changed: a calm stream has a batch
every ten seconds."""
PAGE: Final = 500
ANSWER_BYTES_MAX: Final = 16 << 20
"""Bytes of a page: a query's text is not in it, so some hundred kilobytes."""


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of the queries over a stream that run."""

    late: Mapping[str, int]
    """Query → readings that came late since it was registered."""
    left: Mapping[str, int]
    """Query → records that it has not computed yet, where there are any."""
    told_at: Mapping[str, int]
    """Query → when it said so, ms, by its clock."""


def look_of(queries: list[Mapping[str, Any]], stream: str) -> Look:
    """Pure. `queries`: as the operations API lists them."""
    mine = {
        one["name"]: one
        for one in queries
        if stream in one["streams"] and one["state"] == "running"
    }
    left = {name: one["lag"] for name, one in mine.items() if one["lag"]}
    return Look(
        {name: one["late"] for name, one in mine.items()},
        left,
        {name: one["updated_at"] or 0 for name, one in mine.items()},
    )


def open_ones(sent: Look, now: Look) -> set[str]:
    """Queries that have not computed everything that was sent. Pure.

    They have more to read, or have not reported since.

    `sent`: the look when all was sent.
    """
    return {
        name
        for name, at in now.told_at.items()
        if name in now.left or at <= sent.told_at.get(name, 0)
    }


def lines(before: Look, after: Look, unknown: Collection[str]) -> Iterator[str]:
    """What to say of it, a line each. `unknown`: queries that have not computed all. Pure."""
    late = {name: count - before.late.get(name, 0) for name, count in after.late.items()}
    if unknown:
        yield (
            f"late: not known yet of {', '.join(sorted(unknown))}; `edgewake query list --wide` "
            "counts them"
        )
    if none := sorted(name for name, count in late.items() if count <= 0 and name not in unknown):
        yield f"late: none, for {', '.join(none)}"
    if not any(count > 0 for count in late.values()):
        return
    for name, count in sorted(late.items()):
        if count > 0:
            yield (
                f"late: {count} readings came when their windows of {name} were closed already, "
                "and are not in them;"
                f" `edgewake query repair {name}` computes these windows once more, with them"
            )
    yield (
        "  next time: --sort sends the rows by time, a lower --speed or a longer `lateness` of "
        "the query leaves more of them in time"
    )


class LateReport:
    """The late readings of one stream.

    Call `begin` before anything is sent, `end` when all of it is acknowledged.
    """

    def __init__(
        self,
        stream: str,
        ask: Callable[[], list[Mapping[str, Any]] | None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`ask`: all queries as the operations API lists them; None where it cannot be asked."""
        self._stream, self._ask, self._sleep = stream, ask, sleep
        self._before: Look | None = None

    def begin(self) -> None:
        """Look how many there are before."""
        self._before = self._look()

    def end(self) -> list[str]:
        """Wait until queries have computed what was sent, WAIT_S at most; what to say."""
        sent = None if self._before is None else self._look()
        if self._before is None or sent is None:
            return []
        after = self._settled(sent)
        return list(lines(self._before, after, open_ones(sent, after)))

    def _look(self) -> Look | None:
        queries = self._ask()
        return None if queries is None else look_of(queries, self._stream)

    def _settled(self, sent: Look) -> Look:
        """The first look after which nothing changes any more, or the last one."""
        found, same = sent, 0
        for _ in range(int(WAIT_S / LOOK_S) if found.late else 0):
            self._sleep(LOOK_S)
            before, found = found, self._look() or found
            same = same + 1 if found == before and not open_ones(sent, found) else 0
            if same == LOOKS:
                break
        return found


def asker() -> Callable[[], list[Mapping[str, Any]] | None]:
    """Asks the operations API that EDGEWAKE_OPS_URL names, or a running `edgewake up`'s."""
    running = installation.find()
    url = os.environ.get("EDGEWAKE_OPS_URL") or running.ops
    key = os.environ.get("EDGEWAKE_OPS_KEY") or _key_of(running.ops_key_file)

    def ask() -> list[Mapping[str, Any]] | None:
        if not url.startswith(("http://", "https://")):
            return None
        found: list[Mapping[str, Any]] = []
        after = ""
        try:
            while True:
                page = _page(
                    f"{url.rstrip('/')}/v1/"
                    f"queries?limit={PAGE}{f'&after={after}' if after else ''}",
                    key,
                )
                found += page["items"]
                if page["next"] in (None, after) or not page["items"]:
                    return found
                after = page["next"]
        except (OSError, ValueError, LookupError, TypeError):
            return None

    return ask


def _page(url: str, key: str) -> Any:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})  # noqa: S310  (http only)
    with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:  # noqa: S310
        return json.loads(answer.read(ANSWER_BYTES_MAX))


def _key_of(file: str) -> str:
    try:
        return installation.key_of(Path(file)) if file else ""
    except ConfigError:
        return ""
