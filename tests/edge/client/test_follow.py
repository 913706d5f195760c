"""A follower goes on where it stopped, at whichever server is there."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.edge.client.follow import Connected, Follower, FollowError, Lost, Received
from edgewake.protocol.leases.lease import Subscription
from tests.access.world import Server, server
from tests.deploy.children import Impatient
from tests.feeds import DEADLINE_S, Feed
from tests.services import free_ports


def follower(servers: list[str], feed: Feed, **more: object) -> Follower:
    subscription = Subscription(streams=(feed.name,))
    return Follower(servers, subscription, rng=random.Random(1), **more)  # type: ignore[arg-type]


async def take(following: Follower, count: int) -> list[Received]:
    """The next `count` data events."""
    found: list[Received] = []
    async with asyncio.timeout(2 * DEADLINE_S), contextlib.aclosing(following.events()) as events:
        async for received in events:
            if received.kind == "":
                found.append(received)
            if len(found) == count:
                break
    return found


def numbers(received: list[Received]) -> list[int]:
    return [int(one.fields["n"]) for one in received]


async def test_the_next_run_begins_with_the_event_after_the_one_whose_cursor_was_saved(
    access_a: Server, access_b: Server, feed: Feed
) -> None:
    """Also where the run before ended in the middle of processing: what was not saved is given
    again.
    """
    feed.send(n=6)
    processed, saved = [], ""
    for server_url in (access_a.url, access_b.url, access_a.url):
        async with contextlib.aclosing(
            follower([server_url], feed, cursor=saved, start="earliest").events()
        ) as events:
            async for received in events:
                processed.append(int(received.fields["n"]))
                saved = received.cursor
                if len(processed) % 2 == 0:
                    break
    assert processed == [1, 2, 3, 4, 5, 6]


async def test_a_follower_that_was_left_goes_on_with_the_very_next_event(
    access_a: Server, access_b: Server, feed: Feed
) -> None:
    feed.send(n=6)
    following = follower([access_a.url, access_b.url], feed, start="earliest")
    assert numbers([*await take(following, 4), *await take(following, 2)]) == [1, 2, 3, 4, 5, 6]


async def test_a_follower_goes_to_the_next_server_when_one_is_killed(
    access_b: Server,
    access_directory: Path,
    kafka_config: KafkaConfig,
    cursor_key: Path,
    feed: Feed,
) -> None:
    notices: list[Connected | Lost] = []
    feed.send(n=3)
    with server(access_directory, kafka_config, cursor_key) as doomed:
        following = follower(
            [doomed.url, access_b.url], feed, start="earliest", on_notice=notices.append
        )
        async with (
            asyncio.timeout(2 * DEADLINE_S),
            contextlib.aclosing(following.events()) as events,
        ):
            found = []
            async for received in events:
                found.append(received)
                if len(found) == 3:
                    doomed.process.kill()
                    await asyncio.to_thread(feed.send, n=3)
                if len(found) == 6:
                    break
    assert numbers(found) == [1, 2, 3, 4, 5, 6]
    assert [type(notice) for notice in notices] == [Connected, Lost, Connected]
    assert notices[-1] == Connected(access_b.url, "resumed")


async def test_a_follower_passes_over_servers_that_are_not_there(
    access_a: Server, feed: Feed
) -> None:
    feed.send(n=1)
    nobody = f"http://127.0.0.1:{free_ports(1)[0]}"
    assert numbers(
        await take(follower([nobody, nobody, access_a.url], feed, start="earliest"), 1)
    ) == [1]


@pytest.mark.parametrize(
    ("change", "why"), [({"cursor": "garbage"}, "cursor"), ({"start": "yesterday"}, "from=")]
)
async def test_what_is_refused_for_good_is_an_error_with_the_server_s_sentence(
    access_a: Server, feed: Feed, change: dict[str, str], why: str
) -> None:
    with pytest.raises(FollowError, match=why):
        await take(follower([access_a.url], feed, **change), 1)


async def test_checkpoints_give_a_cursor_where_all_events_were_filtered_out(
    access_a: Server, new_feed: Callable[..., Feed]
) -> None:
    feed = new_feed()
    following = Follower(
        [access_a.url], Subscription(streams=(feed.name,), where="n > 100"), checkpoints=True
    )
    async with asyncio.timeout(DEADLINE_S), contextlib.aclosing(following.events()) as events:
        first = await anext(events)
        await asyncio.to_thread(feed.send, n=5)
        second = await anext(events)
    assert [first.kind, second.kind] == ["checkpoint", "checkpoint"]
    assert first.cursor != second.cursor


async def test_a_follower_that_asked_to_stop_at_a_gap_ends_with_it_and_stays_ended(
    access_a: Server, access_b: Server, new_feed: Callable[..., Feed]
) -> None:
    feed = new_feed(partitions=1)
    for _ in range(10):
        feed.send(n=1)
    (first,) = await take(follower([access_a.url], feed, start="earliest"), 1)
    feed.trim(0, 10)
    following = follower([access_b.url], feed, cursor=first.cursor, on_gap="stop")
    async with asyncio.timeout(DEADLINE_S):
        assert [received.kind async for received in following.events()] == ["gap"]


@pytest.mark.parametrize("server_url", ["127.0.0.1:8700", "localhost", "ftp://x", "http://", ""])
def test_what_is_no_address_of_a_server_is_refused_with_the_cure(server_url: str) -> None:
    with pytest.raises(ValueError, match="expected one such as http://"):
        Follower([server_url], Subscription(streams=("s",)))


# Servers that answer as ours do in bad times, and as others do.

PROBLEM = b'{"detail":"no such stream"}'


def answer(status: str, *headers: str, body: bytes = b"") -> bytes:
    head = "\r\n".join([f"HTTP/1.1 {status}", *headers, "Connection: close"])
    return head.encode() + b"\r\n\r\n" + body


STREAM = "Content-Type: text/event-stream"
ONE_EVENT = answer("200 OK", STREAM, body=b'id: v2.x\ndata: {"n":1}\n\n')
NOT_FOUND = answer("404 Not Found", body=PROBLEM)


@contextlib.asynccontextmanager
async def answering(*answers: bytes, then_silent: bool = False) -> AsyncIterator[str]:
    """A server that gives each connection the next answer, and the last one to all that follow."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(left.pop(0) if len(left) > 1 else left[0])
            await writer.drain()
            if then_silent:
                await reader.read()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


async def first_lost(*answers: bytes, then_silent: bool = False) -> Lost:
    """How the first connection ended."""
    notices: list[Connected | Lost] = []
    async with answering(*answers, then_silent=then_silent) as base:
        events = Follower(
            [base], Subscription(streams=("s",)), rng=random.Random(1), on_notice=notices.append
        ).events()
        waiting = asyncio.ensure_future(anext(events))
        async with asyncio.timeout(DEADLINE_S):
            while not any(isinstance(notice, Lost) for notice in notices):
                await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    return next(notice for notice in notices if isinstance(notice, Lost))


@pytest.mark.parametrize("given", ["7", "Fri, 31 Dec 2100 23:59:59 GMT", "100000"])
async def test_retry_after_is_honoured_up_to_a_bound(given: str) -> None:
    lost = await first_lost(answer("503 Service Unavailable", f"Retry-After: {given}"))
    assert lost.wait_s == pytest.approx(7 if given == "7" else 300, abs=1)


async def test_the_retry_of_a_full_server_is_honoured() -> None:
    """A browser is told so too: 200, `retry`, and the end."""
    lost = await first_lost(
        answer("200 OK", STREAM, "Edgewake-Start: later", body=b"retry: 9000\n\n")
    )
    assert lost.wait_s == 9


async def test_silence_is_measured_in_the_server_s_own_heartbeats() -> None:
    lost = await first_lost(
        answer("200 OK", STREAM, "Edgewake-Heartbeat: 0.4", body=b":\n"), then_silent=True
    )
    assert lost.why == "SseError silent for 1 s"


async def test_one_404_of_several_servers_is_not_final() -> None:
    async with answering(NOT_FOUND) as one, answering(ONE_EVENT) as other:
        following = Follower([one, other], Subscription(streams=("s",)), rng=random.Random(1))
        assert numbers(await take(following, 1)) == [1]


@pytest.mark.parametrize("away", [0, 1])
async def test_a_404_of_all_servers_that_answer_is_final(away: int) -> None:
    nobody = [f"http://127.0.0.1:{port}" for port in free_ports(away)] if away else []
    async with answering(NOT_FOUND) as one, answering(NOT_FOUND) as other:
        following = Follower(
            [*nobody, one, other],
            Subscription(streams=("s",)),
            clock=Impatient(),
            rng=random.Random(1),
        )
        with pytest.raises(FollowError, match="no such stream"):
            await take(following, 1)


async def test_what_does_not_speak_http_is_noticed_by_who_is_not_patient() -> None:
    async with answering(b"\x20\x02\x00\x05") as base:
        with pytest.raises(FollowError, match="right port") as refused:
            await take(Follower([base], Subscription(streams=("s",)), patient=False), 1)
    assert refused.value.wrong_address


async def test_a_host_that_does_not_exist_is_noticed_by_who_is_not_patient() -> None:
    with pytest.raises(FollowError, match="no such host") as refused:
        await take(
            Follower(
                ["http://no-such-host.invalid:8700"], Subscription(streams=("s",)), patient=False
            ),
            1,
        )
    assert refused.value.wrong_address


async def test_a_stream_s_name_is_one_part_of_the_path(access_a: Server, feed: Feed) -> None:
    with pytest.raises(FollowError, match=f"a/../{feed.name}"):
        await take(Follower([access_a.url], Subscription(streams=(f"a/../{feed.name}",))), 1)
