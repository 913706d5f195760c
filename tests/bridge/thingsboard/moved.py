"""A device and a gateway of ThingsBoard, by its own client library: run by a test in a process of
its own, with its address changed and nothing else.

    moved.py device PORT TOKEN COUNT
    moved.py gateway PORT TOKEN COUNT
    moved.py new PORT CODE HTTP_PORT    provisions itself, and asks for its firmware

Each thing that happens is a line of JSON.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import queue
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tb_device_http import TBHTTPDevice
from tb_device_mqtt import TBDeviceMqttClient
from tb_gateway_mqtt import TBGatewayMqttClient

SECOND_MS = 1000
FIRST_MS = 1_790_000_000_000


def say(what: str, **more: Any) -> None:
    print(json.dumps({"what": what, **more}), flush=True)


def connected(client: Any) -> None:
    client.connect()
    while not client.is_connected():
        time.sleep(0.05)
    say("connected")


def until_kept(client: Any, sent: dict[str, Any]) -> None:
    """Send until it is acknowledged: the library forgets what waits when its connection is lost."""
    while True:
        if client.is_connected():
            found = client.send_telemetry(sent).message_info
            infos = found if isinstance(found, list) else [found]
            until = time.monotonic() + 5
            while time.monotonic() < until and client.is_connected():
                if all(one.is_published() for one in infos):
                    return
                time.sleep(0.002)
        time.sleep(0.05)


def until_answered(ask: Callable[[Callable[..., None]], object]) -> None:
    """Ask until there is an answer: the library says that it is connected before it listens, and
    is then told nothing of what it asked too early.
    """
    answers: queue.Queue[Any] = queue.Queue()
    while True:
        ask(lambda body, *_: answers.put(body))
        with contextlib.suppress(queue.Empty):
            body = answers.get(timeout=5)
            if body is not None:  # it gives up by itself, too
                say("asked", body=body)
                return


def device(port: int, token: str, count: int) -> None:
    client = TBDeviceMqttClient("127.0.0.1", port, username=token)

    def on_rpc(number: str, body: dict[str, Any]) -> None:
        say("rpc", **body)
        client.send_rpc_reply(number, {"valve": body["params"], "done": True})

    client.set_server_side_rpc_request_handler(on_rpc)
    connected(client)
    client.subscribe_to_all_attributes(lambda body, *_: say("shared", **body))
    assert client.send_attributes({"firmware": "1.2", "rooms": 3}).get() == 0
    say("attributes sent")

    def ask_attributes(on_attributes: Callable[..., None]) -> None:
        client.request_attributes(["firmware"], ["interval"], callback=on_attributes)

    until_answered(ask_attributes)
    client.send_rpc_call("unknown", {}, lambda _number, body, _error: say("replied", body=body))
    client.claim("secret", 1000).get()
    say("claimed")
    for n in range(count):
        sent = {"ts": FIRST_MS + n * SECOND_MS, "values": {"temperature": 20.5 + n, "n": n}}
        until_kept(client, sent)
        if n == count // 4:
            say("some sent")
    client.subscribe_to_all_attributes(lambda body, *_: say("shared", **body))  # forgotten, too
    say("all sent")
    sys.stdin.readline()
    until_answered(ask_attributes)
    sys.stdin.readline()
    client.disconnect()


def gateway(port: int, token: str, count: int) -> None:
    client = TBGatewayMqttClient("127.0.0.1", port, username=token)

    def on_rpc(_client: Any, body: dict[str, Any]) -> None:
        say("rpc", **body)
        client.gw_send_rpc_reply(body["device"], body["data"]["id"], {"of": body["device"]})

    client.gw_set_server_side_rpc_request_handler(on_rpc)
    connected(client)
    for name in ("Press 1", "Press 2"):
        client.gw_connect_device(name, "press")
        client.gw_send_attributes(name, {"serial": name[-1]})
    for n in range(count):
        name = f"Press {n % 2 + 1}"
        sent = [{"ts": FIRST_MS + n * SECOND_MS, "values": {"strokes": n}}]
        client.gw_send_telemetry(name, sent)
    until_answered(lambda told: client.gw_request_client_attributes("Press 1", ["serial"], told))
    say("all sent")
    sys.stdin.readline()
    client.gw_disconnect_device("Press 2")
    say("disconnected one")
    sys.stdin.readline()
    client.disconnect()


def by_http(web: TBHTTPDevice) -> None:
    """All of the HTTP device API that is no reading."""
    web.send_attributes({"serial": "W-1"})
    say("web attributes", body=web.request_attributes(["serial"], ["interval"]))

    def on_rpc(body: dict[str, Any]) -> None:
        say("web rpc", **body)
        web.send_rpc("done", {"valve": body["params"]}, rpc_id=body["id"])

    web.subscribe("rpc", on_rpc)
    web.subscribe("attributes", lambda body: say("web shared", body=body))
    file = Path("boiler")  # the library writes firmware to a file of its title
    while not file.exists():
        web.get_firmware_update()
        time.sleep(0.2)
    say("web firmware", sha256=hashlib.sha256(file.read_bytes()).hexdigest())


def new(port: int, code: str, http_port: int) -> None:
    web = TBHTTPDevice.provision(f"http://127.0.0.1:{http_port}", "tb-web", "edgewake", code)
    web.send_telemetry({"degrees": 180}, queued=False)
    say("sent by http")
    threading.Thread(target=by_http, args=(web,), daemon=True).start()
    refused = TBDeviceMqttClient.provision("127.0.0.1", "edgewake", code, device_name="", port=port)
    say("refused", answer=refused)
    given = TBDeviceMqttClient.provision(
        "127.0.0.1", "edgewake", code, device_name="tb-new", port=port
    )
    say("provisioned", answer=given)
    token = given["credentialsValue"]
    client = TBDeviceMqttClient("127.0.0.1", port, username=token, chunk_size=1000)

    def on_firmware(_client: Any, data: bytes, version: str) -> None:
        say("firmware", size=len(data), sha256=hashlib.sha256(data).hexdigest(), version=version)

    client.set_on_firmware_received_callback(on_firmware)
    connected(client)
    # There is none yet. It begins by itself when it is told of one.
    client.get_firmware_update()
    sys.stdin.readline()
    client.disconnect()


if __name__ == "__main__":
    kind, port, token, count = sys.argv[1:]
    {"device": device, "gateway": gateway, "new": new}[kind](int(port), token, int(count))
