"""Leases by right: who may ask for one, what it counts, and what its wake-up shows."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from edgewake.cloud.client_share import Clients
from edgewake.cloud.push.app import make_app
from edgewake.cloud.push.deliveries import routes as delivery_routes
from edgewake.cloud.push.groups import routes as group_routes
from edgewake.cloud.rights.config import RightsConfig
from edgewake.cloud.rights.rights import Rights
from edgewake.edge.client import Credentials, Sleeper, Subscription, WakePolicy
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.leases.group import WAIT_S_MAX
from tests.feeds import unique
from tests.push.receiver import receiving
from tests.push.service import Service
from tests.rights.as_long import takes_as_long
from tests.rights.conftest import KEYS, World
from tests.rights.test_doors import client_of, paths_of, told
from tests.services import PATIENCE_S

OPEN, BY_RIGHT, BY_LEASE = "open", "by right", "by lease"
RULES = {
    "/docs": OPEN, "/docs/{file}": OPEN, "/openapi.json": OPEN, "/healthz": OPEN,
    "/readyz": OPEN, "/metrics": OPEN,
    "/v1/leases": BY_RIGHT, "/v1/leases/{lease_id}": BY_LEASE,
    "/v1/leases/{lease_id}/wake": BY_LEASE,
    "/v1/deliveries": BY_RIGHT, "/v1/deliveries/{name}": BY_RIGHT,
    "/v1/deliveries/{name}/enable": BY_RIGHT, "/v1/deliveries/{name}/secret": BY_RIGHT,
    "/v1/deliveries/{name}/test": BY_RIGHT, "/v1/deliveries/{name}/letters": BY_RIGHT,
    "/v1/deliveries/{name}/letters/{number}": BY_RIGHT,
    "/v1/deliveries/{name}/letters/{number}/replay": BY_RIGHT,
    "/v1/groups": BY_RIGHT, "/v1/groups/{name}": BY_RIGHT,
    "/v1/groups/{name}/take": BY_RIGHT, "/v1/groups/{name}/ack": BY_RIGHT,
}  # fmt: skip
"""Who may come in by each path: everybody, who has a right, who has the lease's own token."""


def test_every_route_has_a_rule() -> None:
    clock = SystemClock()
    made = make_app(
        None,  # type: ignore[arg-type]  # none of them is asked
        None,  # type: ignore[arg-type]
        CollectorRegistry(),
        progress=lambda: "",
        rights=Rights(RightsConfig(), clock),
        clock=clock,
    )
    delivery_routes.add_to(made, None, Clients())  # type: ignore[arg-type]
    group_routes.add_to(made, None, Clients(), Rights(RightsConfig(), clock))  # type: ignore[arg-type]
    assert paths_of(made) == set(RULES)


async def cursor_of(world: World, stream: str, *, who: str = "board") -> str:
    """Where a stream begins."""
    async with client_of(world, who) as client:
        page = await client.get(f"/v1/streams/{stream}/events?from=earliest&limit=1")
    assert page.status_code == 200
    return str(page.json()["cursor"])


async def ask(
    push: Service, stream: str, cursor: str, bearer: str | None, **more: Any
) -> httpx.Response:
    body = {
        "subscription": {"streams": [stream], **more},
        "cursor": cursor,
        "endpoint": {"url": "http://127.0.0.1:9/hook"},
        "wake": {"min_events": 1000},
    }
    headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
    async with httpx.AsyncClient(base_url=push.url, timeout=PATIENCE_S, headers=headers) as client:
        return await client.post("/v1/leases", json=body)


async def test_who_may_ask(rights_world: World, push: Service) -> None:
    world = rights_world
    mine, other = world.mine.name, world.other.name
    cursor = await cursor_of(world, mine)
    assert (await ask(push, mine, cursor, None)).status_code == 401
    assert (await ask(push, mine, cursor, "no-such-key-00000")).status_code == 401
    assert (await ask(push, mine, cursor, world.token(exp=time.time() - 9))).status_code == 401
    absent = unique("feed")
    for bearer, name in ((world.token(), other), ("guest-key-00000001", mine)):
        forbidden = await ask(push, name, cursor, bearer)
        missing = await ask(push, absent, cursor, bearer)
        assert (forbidden.status_code, missing.status_code) == (422, 422)
        assert told(forbidden, name) == told(missing, absent)
    for more in ({"where": "secret = 'x'"}, {"where": "no_such = 1"}, {"select": "secret"}):
        refused = await ask(push, mine, cursor, world.token(), **more)
        assert (refused.status_code, refused.json()["title"]) == (422, "filter")


@pytest.mark.parametrize("who", ["owner", "guest"])
@pytest.mark.parametrize("door", ["leases", "deliveries", "groups"])
async def test_what_is_forbidden_is_answered_as_what_is_not_there_and_takes_as_long(
    rights_world: World, push: Service, door: str, who: str
) -> None:
    world = rights_world
    bearer = world.token() if who == "owner" else "guest-key-00000001"
    there = world.other.name if who == "owner" else world.mine.name
    cursor = await cursor_of(world, there)

    async def by(stream: str) -> tuple[int, str, dict[str, str]]:
        if door == "leases":
            answer = await ask(push, stream, cursor, bearer)
        else:
            body = {"streams": [stream], "from": "earliest"}
            if door == "deliveries":
                body["url"] = "http://127.0.0.1:9/hook"
            answer = await asked(push, "PUT", f"/v1/{door}/tried", bearer, body)
        assert answer.status_code == 422, answer.text
        return told(answer, stream)

    absent = unique("feed")
    assert await by(there) == await by(absent)
    await takes_as_long(lambda: by(there), lambda: by(unique("feed")))


async def test_a_lease_counts_what_its_right_shows(rights_world: World, push: Service) -> None:
    world = rights_world
    cursor = await cursor_of(world, world.mine.name, who="owner")
    granted = [
        (await ask(push, world.mine.name, cursor, bearer)).json()
        for bearer in (world.token(), "board-key-00000001")
    ]
    assert all(lease["subscription"]["where"] is None for lease in granted), "not shown"
    fields: dict[str, list[Any]] = {"speed": [60.0], "secret": ["y"]}
    before = [await unseen(push, lease) for lease in granted]
    for device in ("car-1", "car-2", "car-2"):
        world.mine.send(device, fields=fields)
    async with asyncio.timeout(PATIENCE_S):
        while (await unseen(push, granted[1])) - before[1] < 3:
            await asyncio.sleep(0.1)
        while (await unseen(push, granted[0])) - before[0] < 1:
            await asyncio.sleep(0.1)
    board, owner = [await unseen(push, lease) for lease in reversed(granted)]
    assert board - owner >= 2


@pytest.mark.parametrize("who", ["board", "owner"])
async def test_a_lease_counts_what_a_page_of_the_same_words_has(
    rights_world: World, push: Service, who: str
) -> None:
    """Devices and a share were 422 to a lease. The control counts all that its reader sees."""
    world, name = rights_world, rights_world.mine.name
    bearer = "board-key-00000001" if who == "board" else world.token()
    words: list[dict[str, Any]] = [
        {},
        {"devices": ["car-1", "no-such"]},
        {"devices": ["car-1", "car-2"], "where": "speed > 1"},
        {"sample": 0.5},
        {"sample": 0.4, "per": "speed"},
        {"sample": 0.7, "devices": ["car-1", "car-2"]},
    ]
    async with client_of(world, who) as client:
        path = f"/v1/streams/{name}/events"
        cursor = (await client.get(f"{path}?from=latest&limit=1")).json()["cursor"]
        granted = [await ask(push, name, cursor, bearer, **more) for more in words]
        assert [answer.status_code for answer in granted] == [201] * len(words)
        told = [answer.json()["subscription"] for answer in granted]
        assert [(one["devices"], one["sample"]) for one in told] == [
            (more.get("devices"), more.get("sample")) for more in words
        ]
        for n in range(6):
            for device in ("car-1", "car-2"):
                world.mine.send(device, fields={"speed": [float(n)], "secret": ["z"]})

        async def of_page(more: dict[str, Any]) -> int:
            body = {**more, "after": cursor, "limit": 100}
            answer = await client.post(path, json=body)
            assert answer.status_code == 200, answer.text
            return len([event for event in answer.json()["events"] if "$event" not in event])

        async with asyncio.timeout(PATIENCE_S):
            while await of_page({}) < (12 if who == "board" else 6):
                await asyncio.sleep(0.1)
            pages = [await of_page(more) for more in words]
            while await unseen(push, granted[0].json()) < pages[0]:
                await asyncio.sleep(0.1)
        counts = [await unseen(push, answer.json()) for answer in granted]
    assert counts == pages
    assert len(set(pages)) > 2, "they differ"
    if who == "owner":
        hidden = await ask(push, name, cursor, bearer, sample=0.5, per="secret")
        assert (hidden.status_code, hidden.json()["title"]) == (422, "filter")
        for wrong in ({"per": "speed"}, {"devices": ["a b"]}, {"streams": [], "sample": 0.5}):
            assert (await ask(push, name, cursor, bearer, **wrong)).status_code == 422, wrong


async def unseen(push: Service, lease: dict[str, Any]) -> int:
    async with httpx.AsyncClient(base_url=push.url, timeout=PATIENCE_S) as client:
        answer = await client.get(
            f"/v1/leases/{lease['id']}", headers={"Authorization": f"Bearer {lease['token']}"}
        )
    return int(answer.json()["unseen_count"])


async def test_a_lease_of_one_is_no_right_of_another(rights_world: World, push: Service) -> None:
    world = rights_world
    cursor = await cursor_of(world, world.mine.name)
    lease = (await ask(push, world.mine.name, cursor, "board-key-00000001")).json()
    async with httpx.AsyncClient(base_url=push.url, timeout=PATIENCE_S) as client:
        for bearer in (world.token(), "board-key-00000001"):
            answer = await client.get(
                f"/v1/leases/{lease['id']}", headers={"Authorization": f"Bearer {bearer}"}
            )
            assert answer.status_code == 404


async def asked(
    push: Service, method: str, path: str, bearer: str, body: object = None
) -> httpx.Response:
    headers = {"Authorization": f"Bearer {bearer}"}
    async with httpx.AsyncClient(base_url=push.url, timeout=PATIENCE_S, headers=headers) as client:
        return await client.request(method, path, json=body)


ENDS_S = 2.0
"""In which what is open by a right ends when the right does; see docs/rights.md."""


async def wait_at_relay(push: Service, stream: str, cursor: str, bearer: str) -> httpx.Response:
    """Ask for a lease with a relay, and wait there for a wake-up that does not come."""
    body = {
        "subscription": {"streams": [stream]},
        "cursor": cursor,
        "endpoint": {"type": "relay"},
        "wake": {"min_events": 1000},
    }
    made = await asked(push, "POST", "/v1/leases", bearer, body)
    assert made.status_code == 201, made.text
    lease = made.json()
    return await asked(push, "GET", f"/v1/leases/{lease['id']}/wake?wait=50", lease["token"])


@pytest.mark.parametrize(
    "how",
    ["revoked", *(pytest.param(one, marks=pytest.mark.long) for one in ("removed", "expired"))],
)
async def test_who_waits_at_a_relay_is_told_that_his_right_has_ended(
    rights_world: World, push: Service, how: str
) -> None:
    """Control: another one that waits beside waits on."""
    world, name = rights_world, rights_world.mine.name
    cursor = await cursor_of(world, name)
    expires = time.time() + 3
    bearer = {
        "revoked": lambda: world.token(jti="one-at-a-relay"),
        "removed": lambda: "lost-key-000000001",
        "expired": lambda: world.token(exp=expires),
    }[how]()
    mine = asyncio.create_task(wait_at_relay(push, name, cursor, bearer))
    control = asyncio.create_task(wait_at_relay(push, name, cursor, world.token()))
    try:
        await asyncio.sleep(1)
        assert not mine.done()
        if how == "revoked":
            world.file("revoked", "jti one-at-a-relay\n")
        elif how == "removed":
            world.file("readers.keys", KEYS.replace("lost everything lost-key-000000001", ""))
        ends = expires if how == "expired" else time.time()
        async with asyncio.timeout(PATIENCE_S):
            answer = await mine
        assert time.time() - ends < ENDS_S
        assert answer.status_code == 410
        assert f"its right is {'expired' if how == 'expired' else 'revoked'}" in answer.text
        assert not control.done()
    finally:
        world.file("revoked", "")
        world.file("readers.keys", KEYS)
        mine.cancel()
        control.cancel()


async def test_a_sleeper_is_woken_when_its_right_has_ended(
    rights_world: World, push: Service
) -> None:
    world, name = rights_world, rights_world.mine.name
    cursor = await cursor_of(world, name)
    credentials = Credentials(token=world.token(jti="one-sleeper"))
    wanted, much = Subscription(streams=(name,)), WakePolicy(min_events=1000)
    sleeper = Sleeper([push.url], wanted, wake=much, credentials=credentials)
    sleeping = asyncio.create_task(sleeper.sleep(cursor))
    await asyncio.sleep(1)
    assert not sleeping.done()
    world.file("revoked", "jti one-sleeper\n")
    began = time.monotonic()
    try:
        async with asyncio.timeout(PATIENCE_S):
            woken = await sleeping
        assert time.monotonic() - began < ENDS_S + 1, "its own pause comes to it"
        assert "its right is revoked" in woken.ended
    finally:
        world.file("revoked", "")


async def test_a_delivery_shows_what_its_owner_sees_and_ends_with_its_right(
    rights_world: World, push: Service
) -> None:
    world, name = rights_world, unique("d")
    taken_back, good = world.token(jti="one-of-a-delivery"), world.token()
    path = f"/v1/deliveries/{name}"
    async with receiving() as receiver:
        body = {"streams": [world.mine.name], "from": "earliest", "url": receiver.url}
        absent = unique("feed")
        for bearer, stream in ((good, world.other.name), ("guest-key-00000001", world.mine.name)):
            forbidden = await asked(push, "PUT", path, bearer, body | {"streams": [stream]})
            missing = await asked(push, "PUT", path, bearer, body | {"streams": [absent]})
            assert (forbidden.status_code, missing.status_code) == (422, 422)
            assert told(forbidden, stream) == told(missing, absent)
        made = await asked(push, "PUT", path, taken_back, body)
        assert made.status_code == 201, made.text
        calls = await receiver.got(1)
        events = [event for call in calls for event in json.loads(call.body)["events"]]
        assert {event["device"] for event in events} == {"car-1"}
        assert all("speed" in event and "secret" not in event for event in events)
        assert (await asked(push, "GET", path, "board-key-00000001")).status_code == 404
        assert (await asked(push, "GET", path, good)).json()["state"] == "active"
        world.file("revoked", "jti one-of-a-delivery\n")
        began = time.monotonic()
        async with asyncio.timeout(PATIENCE_S):
            while (view := (await asked(push, "GET", path, good)).json())["state"] != "ended":
                await asyncio.sleep(0.05)
        assert time.monotonic() - began < 3
        assert "revoked" in view["why"]
        world.file("revoked", "")
        count = len(receiver.calls)
        world.mine.send("car-1", fields={"speed": [70.0], "secret": ["z"]})
        assert (await asked(push, "POST", f"{path}/enable", good)).json()["state"] == "active"
        await receiver.got(count + 1)
        assert json.loads(receiver.calls[-1].body)["events"][-1]["speed"] == 70.0
        assert (await asked(push, "DELETE", path, good)).status_code == 204


async def test_a_delivery_goes_on_where_its_key_is_given_more_and_ends_where_less(
    rights_world: World, push: Service
) -> None:
    world, name, key = rights_world, unique("d"), "depot-key-00000001"

    def depot(*devices: str) -> None:
        world.file("readers.keys", KEYS + f"depot owner_alone {key} {' '.join(devices)}\n")

    async def sees(device: str) -> bool:
        """Does the proxy know that this key sees it? A group of its own tells."""
        group = f"/v1/groups/{unique('g')}"
        body = {"streams": [world.mine.name], "where": f"device = '{device}'"}
        made = await asked(push, "PUT", group, key, body | earliest)
        if made.status_code != 201:
            return False
        taken = await asked(push, "POST", f"{group}/take", key, {"max": 1, "wait_s": 1})
        await asked(push, "DELETE", group, key)
        if taken.status_code != 200:  # its right was replaced while it waited
            return False
        return [one["event"]["device"] for one in taken.json()["events"]] == [device]

    earliest = {"from": "earliest"}
    depot("car-1")
    path = f"/v1/deliveries/{name}"
    try:
        async with receiving() as receiver, asyncio.timeout(2 * PATIENCE_S):
            while not await sees("car-1"):
                await asyncio.sleep(0.1)
            body = {"streams": [world.mine.name], "url": receiver.url}
            assert (await asked(push, "PUT", path, key, body)).status_code == 201
            depot("car-1", "car-2")
            while not await sees("car-2"):
                await asyncio.sleep(0.1)
            for device, speed in (("car-2", 80.0), ("car-1", 81.0)):
                world.mine.send(device, fields={"speed": [speed], "secret": ["z"]})
            (call,) = await receiver.got(1)
            events = json.loads(call.body)["events"]
            assert [(one["device"], one["speed"]) for one in events] == [("car-1", 81.0)]
            assert (await asked(push, "GET", path, key)).json()["state"] == "active"
            enabled = await asked(push, "POST", f"{path}/enable", key)
            assert enabled.json()["state"] == "active"
            world.mine.send("car-2", fields={"speed": [82.0], "secret": ["z"]})
            await receiver.got(2)
            assert json.loads(receiver.calls[-1].body)["events"][-1]["speed"] == 82.0
            depot("car-2")
            while (view := (await asked(push, "GET", path, key)).json())["state"] != "ended":
                await asyncio.sleep(0.05)
            assert "its right is revoked" in view["why"]
            assert (await asked(push, "DELETE", path, key)).status_code == 204
    finally:
        world.file("readers.keys", KEYS)


async def test_another_right_of_the_same_name_reaches_no_dead_letter(
    rights_world: World, push: Service
) -> None:
    """A person may have several tokens, and one of them may be for one device only."""
    world, name = rights_world, unique("d")
    good, other = world.token(), world.token(device="car-2")
    path = f"/v1/deliveries/{name}"
    async with receiving() as receiver, receiving() as elsewhere:
        receiver.answer = lambda n: (422, {})
        body = {"streams": [world.mine.name], "from": "earliest", "events_max": 1}
        made = await asked(push, "PUT", path, good, body | {"url": receiver.url})
        assert made.status_code == 201, made.text

        async def letters(bearer: str) -> httpx.Response:
            return await asked(push, "GET", f"{path}/letters", bearer)

        async with asyncio.timeout(PATIENCE_S):
            while not (found := (await letters(good)).json()["letters"]):
                await asyncio.sleep(0.05)
        assert found[0]["event"]["device"] == "car-1", "the control: its owner sees them"
        replay = f"{path}/letters/{found[0]['number']}/replay"
        taken_over = await asked(push, "PUT", path, other, body | {"url": elsewhere.url})
        assert (taken_over.status_code, taken_over.json()["title"]) == (422, "letters")
        for answer in (await letters(other), await asked(push, "POST", replay, other)):
            assert (answer.status_code, answer.json()["title"]) == (404, "no such delivery")
        enabled = await asked(push, "POST", f"{path}/enable", other)
        assert (enabled.status_code, enabled.json()["title"]) == (422, "letters")
        assert elsewhere.calls == []
        receiver.answer = lambda n: (204, {})
        assert (await asked(push, "POST", replay, good)).json()["taken"] is True
        assert (await asked(push, "DELETE", path, good)).status_code == 204


async def test_who_waits_for_a_group_s_events_is_given_none_once_its_right_has_ended(
    rights_world: World, push: Service
) -> None:
    """Control: another one that waits as long is given them."""
    world, name = rights_world, unique("g")
    path = f"/v1/groups/{name}/take"
    body = {"streams": [world.mine.name], "from": "latest"}
    taken_back, good = world.token(jti="one-of-a-group"), world.token()
    assert (await asked(push, "PUT", f"/v1/groups/{name}", good, body)).status_code == 201
    first = await asked(push, "POST", path, good, {"wait_s": 1})
    assert (first.status_code, first.json()["events"]) == (200, [])
    waiting = asyncio.create_task(asked(push, "POST", path, taken_back, {"wait_s": WAIT_S_MAX}))
    await asyncio.sleep(0.5)
    assert not waiting.done()
    world.file("revoked", "jti one-of-a-group\n")
    assert (await waiting).status_code == 401
    other = asyncio.create_task(asked(push, "POST", path, good, {"wait_s": WAIT_S_MAX}))
    await asyncio.sleep(0.5)
    await asyncio.to_thread(world.mine.send, "car-1")
    assert len((await other).json()["events"]) == 1
    assert (await asked(push, "DELETE", f"/v1/groups/{name}", good)).status_code == 204


async def test_what_waits_for_a_group_and_a_delivery_end_when_their_token_expires(
    rights_world: World, push: Service
) -> None:
    """Within two seconds; both are there while it holds. Control: others of the same wait on."""
    world, good = rights_world, rights_world.token()
    ends = time.time() + 4
    short = world.token(exp=ends)
    names = {"short": unique("n"), "good": unique("n")}
    group, take = f"/v1/groups/{unique('g')}", {"wait_s": WAIT_S_MAX}
    body = {"streams": [world.mine.name], "from": "latest"}

    async def state(which: str) -> dict[str, Any]:
        found: dict[str, Any] = (
            await asked(push, "GET", f"/v1/deliveries/{names[which]}", good)
        ).json()
        return found

    async with receiving() as receiver, asyncio.timeout(PATIENCE_S):
        for which, bearer in (("short", short), ("good", good)):
            where = f"/v1/deliveries/{names[which]}"
            made = await asked(push, "PUT", where, bearer, body | {"url": receiver.url})
            assert made.status_code == 201, made.text
        assert (await asked(push, "PUT", group, good, body)).status_code == 201
        waits = [
            asyncio.create_task(asked(push, "POST", f"{group}/take", bearer, take))
            for bearer in (short, good)
        ]
        while not waits[0].done() or (await state("short"))["state"] != "ended":
            assert time.time() < ends + 2.5
            await asyncio.sleep(0.05)
        assert time.time() > ends - 0.1
        refused = await waits[0]
        assert (refused.status_code, refused.json()["title"]) == (401, "key expired")
        assert "expired" in (await state("short"))["why"]
        assert (await state("good"))["state"] == "active"
        assert not waits[1].done()
        await asyncio.to_thread(world.mine.send, "car-1")
        assert len((await waits[1]).json()["events"]) == 1
        for path in (group, *(f"/v1/deliveries/{name}" for name in names.values())):
            assert (await asked(push, "DELETE", path, good)).status_code == 204


async def test_a_group_is_shared_by_who_sees_the_same(rights_world: World, push: Service) -> None:
    world, name = rights_world, unique("g")
    path = f"/v1/groups/{name}"
    body = {"streams": [world.mine.name], "from": "earliest"}
    assert (await asked(push, "PUT", path, world.token(), body)).status_code == 201
    taken = await asked(push, "POST", f"{path}/take", world.token(), {"max": 100, "wait_s": 5})
    events = [one["event"] for one in taken.json()["events"]]
    assert {event["device"] for event in events} == {"car-1"}
    assert all("secret" not in event for event in events)
    other = world.token(device="car-2")
    for method, tail, words in (("POST", "/take", {}), ("GET", "", None), ("PUT", "", body)):
        refused = await asked(push, method, path + tail, other, words)
        assert (refused.status_code, refused.json()["title"]) == (409, "group differs")
    assert (await asked(push, "POST", f"{path}/take", "board-key-00000001", {})).status_code == 404
    assert (await asked(push, "DELETE", path, "board-key-00000001")).status_code == 404
    assert (await asked(push, "DELETE", path, other)).status_code == 204, "it is its subject's"
    assert (await asked(push, "PUT", path, other, body)).status_code == 201
    assert (await asked(push, "DELETE", path, other)).status_code == 204


async def test_a_group_goes_on_where_its_owner_is_given_more(
    rights_world: World, push: Service
) -> None:
    """A customer buys a second car: its next token names two, and the place is kept."""
    world, name = rights_world, unique("g")
    path = f"/v1/groups/{name}"
    body = {"streams": [world.mine.name], "from": "latest"}
    old, new = world.token(), world.token(device=["car-1", "car-2"])

    async def taken(bearer: str) -> list[tuple[str, float]]:
        words = {"max": 100, "wait_s": 5, "hold_s": 60}
        answer = await asked(push, "POST", f"{path}/take", bearer, words)
        assert answer.status_code == 200, answer.text
        events = [one["event"] for one in answer.json()["events"]]
        return [(event["device"], event["speed"]) for event in events]

    assert (await asked(push, "PUT", path, old, body)).status_code == 201
    first = asyncio.create_task(taken(old))  # it reads the streams when the next two come
    async with asyncio.timeout(PATIENCE_S):
        while (await asked(push, "GET", path, old)).json()["waiting"] < 1:
            await asyncio.sleep(0.05)
    world.mine.send("car-1", fields={"speed": [90.0], "secret": ["z"]})
    assert await first == [("car-1", 90.0)]
    world.mine.send("car-1", fields={"speed": [91.0], "secret": ["z"]})
    assert await taken(new) == [("car-1", 91.0)], "who sees more may work for it"
    assert (await asked(push, "PUT", path, new, body)).status_code == 200
    assert (await asked(push, "POST", f"{path}/take", old, {})).status_code == 409
    world.mine.send("car-2", fields={"speed": [92.0], "secret": ["z"]})
    assert await taken(new) == [("car-2", 92.0)]
    view = (await asked(push, "GET", path, new)).json()
    assert view["held"] == 3, "what was taken before is held still"
    assert view["oldest"]["count"] == 1
    assert (await asked(push, "DELETE", path, old)).status_code == 204
