"""Follows an event stream with a client that others wrote: python foreign_reader.py
httpx_sse|sseclient|launchdarkly|curl URL LAST

Prints the data of every reading, a line each, and ends with the one whose `n` is LAST or more.
Those that do not reconnect by themselves are made to as their users do it: with the last id, after
a moment.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, TypeAlias

PAUSE_S = 0.2
TIMEOUT_S = 60
Found: TypeAlias = tuple[str, str, str]
"""(id, event, data)"""


def httpx_sse(url: str, last_id: str) -> Iterator[Found]:
    import httpx
    from httpx_sse import connect_sse

    headers = {"Last-Event-ID": last_id} if last_id else {}
    with (
        contextlib.suppress(httpx.HTTPError),
        httpx.Client(timeout=TIMEOUT_S) as client,
        connect_sse(client, "GET", url, headers=headers) as source,
    ):
        for event in source.iter_sse():
            yield event.id, event.event, event.data


def sseclient(url: str, last_id: str) -> Iterator[Found]:
    import requests
    from sseclient import SSEClient

    headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
    with (
        contextlib.suppress(requests.RequestException),
        requests.get(url, stream=True, headers=headers, timeout=TIMEOUT_S) as answer,
    ):
        for event in SSEClient(answer).events():
            yield event.id or "", event.event, event.data


def launchdarkly(url: str, _: str) -> Iterator[Found]:
    """It reconnects by itself, with its own last id."""
    from ld_eventsource import SSEClient
    from ld_eventsource.config import ConnectStrategy, ErrorStrategy

    for event in SSEClient(
        ConnectStrategy.http(url),
        initial_retry_delay=PAUSE_S,
        error_strategy=ErrorStrategy.always_continue(),
    ).events:
        yield event.last_event_id or "", event.event, event.data


def curl(url: str, last_id: str) -> Iterator[Found]:
    """A person with a terminal: what curl prints, and the last id of a whole block given to it
    again.
    """
    header = ["-H", f"Last-Event-ID: {last_id}"] if last_id else []
    with subprocess.Popen(
        ["curl", "-sN", *header, url], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        block: dict[str, str] = {}
        for line in child.stdout:
            name, _, value = line.rstrip("\n").partition(": ")
            if name:
                block[name] = value
            elif block:
                yield block.get("id", ""), block.get("event", "message"), block.get("data", "")
                block = {}
        child.kill()


READERS = {reader.__name__: reader for reader in (httpx_sse, sseclient, launchdarkly, curl)}


def main() -> None:
    kind, url, last = sys.argv[1:]
    last_id = ""
    while True:
        for found_id, event, data in READERS[kind](url, last_id):
            last_id = found_id or last_id
            if event == "message" and data:
                print(data, flush=True)
                reading: dict[str, Any] = json.loads(data)
                if reading["n"] >= float(last):
                    sys.exit(0)
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
