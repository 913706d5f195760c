"""The proxy's own decisions, with a real HTTP receiver; the log and the table of leases are small
ones in memory.
"""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
import standardwebhooks

from edgewake.cloud.calls.endpoint import EndpointRefused
from edgewake.cloud.push.leases.lease_state import PAUSE_S
from edgewake.cloud.push.leases.wake_policy import COUNT_MAX, GIVE_UP_AFTER_S, GIVE_UP_TRIES_MIN
from edgewake.cloud.push.proxy import (
    Elsewhere,
    KeyUsedBefore,
    NoSuchLease,
    Standby,
    TooManyLeases,
)
from edgewake.cloud.push.waking.call_slots import CALLS_PER_HOST_MAX
from edgewake.cloud.push.waking.wake_queue import IN_HAND_PER_HOST_MAX
from edgewake.cloud.rights.principal import ANYBODY
from edgewake.protocol.errors import ConfigError, CursorError, Unavailable
from edgewake.protocol.leases import lease_record
from edgewake.protocol.leases.endpoint_kind import EndpointKind
from edgewake.protocol.leases.lease import LeaseChange, LeaseRequest, Webhook
from edgewake.protocol.leases.lease_read import hash_token
from edgewake.protocol.leases.lease_record import LeaseState
from tests.push.builders import ManualClock, lease, request, sealer
from tests.push.proxy_world import (
    MemoryLog,
    MemoryStore,
    calls,
    event_of,
    kept,
    pass_time,
    proxying,
    settle,
    until,
    world,
)
from tests.push.receiver import receiving
from tests.services import PATIENCE_S


async def test_a_lease_is_stored_before_it_is_granted_and_an_event_wakes() -> None:
    async with world() as w:
        granted = await w.grant()
        assert kept(w) == granted.lease
        w.log.add()
        (call,) = await w.receiver.got(1)
        body = call.verified(granted.endpoint.secret)
        body.pop("timestamp")
        assert body == {
            "type": "edgewake.wake",
            "lease": granted.lease.id,
            "cursor": "c0",
            "count": 1,
            "capped": False,
            "gap": False,
            "urgency": "normal",
            "again": 0,
            "streams": ["s"],
            "events": [{"n": 1}],
        }


async def test_what_is_stored_names_neither_address_nor_secret_nor_token() -> None:
    async with world() as w:
        granted = await w.grant()
        stored = lease_record.encode(kept(w)).decode()
        assert not any(
            part in stored for part in ("/hook", granted.endpoint.secret, granted.endpoint.token)
        )


async def test_events_that_came_before_the_lease_wake_too() -> None:
    async with world() as w:
        w.log.add(3)
        await w.grant(cursor="c1")
        (call,) = await w.receiver.got(1)
        assert b'"count":2' in call.body


async def test_a_lease_is_notified_only_after_the_wake_up_was_taken() -> None:
    async with world(ManualClock()) as w:
        states: list[LeaseState] = []
        w.receiver.answer = lambda n: (states.append(kept(w).state), (500 if n < 3 else 200, {}))[1]
        await w.grant()
        w.log.add()
        await pass_time(w, lambda: kept(w).state is LeaseState.NOTIFIED, within_s=3600)
        assert states == [LeaseState.CALLING] * 4
        assert {call.id for call in w.receiver.calls} == {f"msg_{kept(w).id}_1"}
        assert len({call.body for call in w.receiver.calls}) == 1
        assert (kept(w).counted_to, kept(w).count) == ("c1", 1)


# One pending wake-up


async def test_a_client_that_does_not_resume_is_woken_after_a_minute_ten_and_an_hour() -> None:
    async with world(ManualClock()) as w:
        granted = await w.grant()
        times: list[int] = []
        w.receiver.answer = lambda _: (times.append(w.clock.now_ms()), (200, {}))[1]
        w.log.add()
        await settle(w)
        for _ in range(100):
            w.log.add()
            await settle(w)
        assert len(times) == 1
        await pass_time(w, lambda: len(times) == 4, within_s=3 * 3600)
        waits_s = [round((later - earlier) / 1000) for earlier, later in itertools.pairwise(times)]
        assert all(
            base <= wait <= base * 1.1 for wait, base in zip(waits_s, (60, 600, 3600), strict=True)
        )
        bodies = [call.signed(granted.endpoint.secret) for call in w.receiver.calls]
        assert [(body["count"], body["again"], body["cursor"]) for body in bodies] == [
            (1, 0, "c0"),
            (101, 1, "c0"),
            (101, 2, "c0"),
            (101, 3, "c0"),
        ]
        assert len({call.id for call in w.receiver.calls}) == 4


async def test_a_client_that_reads_is_not_woken() -> None:
    async with world(ManualClock()) as w:
        granted = await w.grant()
        w.reads(granted)
        w.log.add(5)
        await settle(w)
        assert (kept(w).state, w.receiver.connections) == (LeaseState.PAUSED, 0)


async def test_resuming_ends_the_wake_ups_and_a_silent_leave_begins_them_where_it_resumed() -> None:
    async with world(ManualClock()) as w:
        granted = await w.grant()
        w.log.add(2)
        await settle(w)
        w.reads(granted, cursor="c2")
        w.log.add(3)
        for _ in range(5):
            w.clock.advance(60)
            await settle(w)
            w.reads(granted)
        assert len(w.receiver.calls) == 1
        await pass_time(w, lambda: len(w.receiver.calls) == 2, within_s=PAUSE_S + 1)
        body = w.receiver.calls[1].signed(granted.endpoint.secret)
        assert (body["count"], body["cursor"], body["again"]) == (3, "c2", 0)


async def test_a_client_that_went_to_sleep_again_with_its_cursor_is_woken_by_what_comes_after() -> (
    None
):
    async with world(ManualClock()) as w:
        granted = await w.grant()
        w.log.add(2)
        await settle(w)
        w.reads(granted, cursor="c2")
        await w.proxy.change(granted.lease.id, granted.endpoint.token, LeaseChange(cursor="c2"))
        await settle(w)
        assert (kept(w).state, len(w.receiver.calls)) == (LeaseState.WAITING, 1)
        w.log.add()
        await settle(w)
        assert w.receiver.calls[1].signed(granted.endpoint.secret)["count"] == 1


async def test_late_news_of_a_read_holds_nobody_who_sleeps_again() -> None:
    """The news comes by Kafka, the PATCH at once: it was taken for a reader, where it had begun."""
    async with world(ManualClock()) as w:
        granted = await w.grant()
        w.log.add(2)
        await settle(w)
        read_at = w.clock.now_ms()
        w.clock.advance(0.005)
        await w.proxy.change(granted.lease.id, granted.endpoint.token, LeaseChange(cursor="c2"))
        w.clock.advance(0.005)
        w.reads(granted, at=read_at, cursor="c0")
        await settle(w)
        assert (kept(w).state, kept(w).cursor) == (LeaseState.WAITING, "c2")
        w.log.add()
        await settle(w)
        assert w.receiver.calls[1].signed(granted.endpoint.secret)["count"] == 1
        w.clock.advance(60)
        w.reads(granted)
        await settle(w)
        assert kept(w).state is LeaseState.PAUSED, "news of later is believed"


async def test_a_read_with_another_token_or_long_ago_or_of_other_streams_moves_nothing() -> None:
    async with world(ManualClock()) as w:
        granted = await w.grant()
        w.reads(granted, token_hash=hash_token("other"))
        w.reads(granted, at=w.clock.now_ms() - PAUSE_S * 1000 - 1)
        await settle(w)
        assert kept(w).state is LeaseState.WAITING
        w.reads(granted, streams=("t",), cursor="c7")
        await settle(w)
        assert (kept(w).state, kept(w).cursor) == (LeaseState.PAUSED, "c0")


async def test_a_client_that_comes_back_during_its_call_is_not_called_again() -> None:
    async with world(ManualClock()) as w:
        granted = await w.grant()

        def answer(_: int) -> tuple[int, dict[str, str]]:
            w.reads(granted, cursor="c1")
            return 503, {}

        w.receiver.answer = answer
        w.log.add()
        await pass_time(w, lambda: kept(w).state is LeaseState.PAUSED, within_s=1)
        await pass_time(w, lambda: kept(w).state is LeaseState.WAITING, within_s=PAUSE_S + 1)
        assert len(w.receiver.calls) == 1


async def test_nobody_is_woken_in_quiet_hours_and_everybody_at_their_end() -> None:
    """NOW is 14:13 UTC."""
    async with world(ManualClock()) as w:
        times: list[int] = []
        w.receiver.answer = lambda _: (times.append(w.clock.now_ms()), (200, {}))[1]
        await w.grant(wake={"quiet": {"start": "14:00", "end": "14:45"}})
        w.log.add()
        await pass_time(w, lambda: bool(times), within_s=3600)
        assert (times[0] // 60_000) % (24 * 60) == 14 * 60 + 45


# What is lost, far behind, or too much


async def test_more_than_is_counted_is_said() -> None:
    async with world() as w:
        w.log.add(COUNT_MAX * 3)
        granted = await w.grant()
        (call,) = await w.receiver.got(1)
        body = call.verified(granted.endpoint.secret)
        assert (body["count"], body["capped"]) == (COUNT_MAX, True)


async def test_a_lost_range_is_told_as_a_gap() -> None:
    async with world() as w:
        w.log.events = w.log.earliest = 50
        granted = await w.grant(cursor="c10", wake={"min_events": 5})
        (call,) = await w.receiver.got(1)
        assert call.verified(granted.endpoint.secret)["gap"] is True


# Endpoints that fail


async def test_an_endpoint_that_is_gone_is_called_once_and_never_again() -> None:
    async with world(ManualClock()) as w:
        w.receiver.answer = lambda _: (410, {})
        granted = await w.grant()
        w.log.add()
        await settle(w)
        assert kept(w).disabled == "the endpoint answered 410"
        w.log.add(5)
        w.clock.advance(86_400)
        await settle(w)
        assert len(w.receiver.calls) == 1
        assert w.proxy.get(granted.lease.id, granted.endpoint.token).state is LeaseState.DISABLED


@pytest.mark.parametrize("change", [{"enabled": True}, {"endpoint": "same"}])
async def test_an_endpoint_that_was_given_up_can_be_called_again(change: dict[str, Any]) -> None:
    async with world(ManualClock()) as w:
        w.receiver.answer = lambda n: (410 if n == 0 else 200, {})
        granted = await w.grant()
        w.log.add()
        await settle(w)
        if "endpoint" in change:
            change = {"endpoint": Webhook(url=w.receiver.url)}
        await w.proxy.change(granted.lease.id, granted.endpoint.token, LeaseChange(**change))
        await settle(w)
        assert (kept(w).state, len(w.receiver.calls)) == (LeaseState.NOTIFIED, 2)
        w.receiver.calls[1].signed(granted.endpoint.secret)


@pytest.mark.parametrize("status", [404, 503])
@pytest.mark.parametrize(
    "more", [{}, {"retry-after": "0"}, {"retry-after": "1"}, {"retry-after": "999999999"}]
)
async def test_an_endpoint_that_fails_is_tried_for_three_days_whatever_it_asks_for(
    status: int, more: dict[str, str]
) -> None:
    async with world(ManualClock()) as w:
        times: list[int] = []
        w.receiver.answer = lambda _: (times.append(w.clock.now_ms()), (status, more))[1]
        await w.grant(ttl_s=2_000_000)
        w.log.add()
        await pass_time(w, lambda: kept(w).disabled is not None)
        assert times[-1] - times[0] >= GIVE_UP_AFTER_S * 1000
        assert GIVE_UP_TRIES_MIN <= len(times) <= 15


async def test_404_ends_the_lease_of_a_push_service() -> None:
    """RFC 8030, 7.3: the subscription is not there any more. Of a webhook: it is tried again."""
    async with world(ManualClock()) as w:
        w.receiver.answer = lambda _: (404, {})
        await w.grant(endpoint=Webhook(url=w.receiver.url, kind=EndpointKind.PUSH_SERVICE))
        w.log.add()
        await settle(w)
        assert kept(w).disabled == "the endpoint answered 404"
        w.clock.advance(86_400)
        await settle(w)
        assert len(w.receiver.calls) == 1


async def test_the_owners_headers_come_with_each_call_and_are_kept_sealed() -> None:
    async with world(ManualClock()) as w:
        w.receiver.answer = lambda n: (500 if n == 0 else 204, {})
        own = {"Authorization": "Bearer capability", "TTL": "60"}
        granted = await w.grant(endpoint=Webhook(url=w.receiver.url, headers=own))
        w.log.add()
        await pass_time(w, lambda: len(w.receiver.calls) == 2, within_s=60)
        for call in w.receiver.calls:
            assert (call.headers["authorization"], call.headers["ttl"]) == tuple(own.values())
            call.signed(granted.endpoint.secret)
        assert b"capability" not in lease_record.encode(kept(w))
        await w.proxy.change(
            granted.lease.id,
            granted.endpoint.token,
            LeaseChange(cursor="c1", endpoint=Webhook(url=w.receiver.url + "/elsewhere")),
        )
        w.log.add()
        await pass_time(w, lambda: len(w.receiver.calls) == 3, within_s=60)
        assert "authorization" not in w.receiver.calls[2].headers, "another address was shown it"


async def test_two_secrets_sign_while_one_takes_the_place_of_the_other() -> None:
    new = "whsec_" + "B" * 32
    async with world(ManualClock()) as w:
        granted = await w.grant()
        old = granted.endpoint.newest_secret
        change = LeaseChange(
            endpoint=Webhook(url=w.receiver.url, secret=new, keep_old_s=3600), cursor="c0"
        )
        once = await w.proxy.change(granted.lease.id, granted.endpoint.token, change)
        w.clock.advance(60)
        twice = await w.proxy.change(granted.lease.id, granted.endpoint.token, change)
        assert twice.old_secret_until == once.old_secret_until, "its answer was lost on the way"
        for expected in ({old, new}, {new}):
            w.log.add()
            await settle(w)
            call = w.receiver.calls[-1]
            at = datetime.fromtimestamp(int(call.headers["webhook-timestamp"]), UTC)
            good = {
                standardwebhooks.Webhook(secret).sign(call.id, at, call.body.decode()): secret
                for secret in (old, new)
            }
            assert {good[one] for one in call.headers["webhook-signature"].split()} == expected
            w.clock.advance(3600)
            change = LeaseChange(cursor=f"c{w.log.events}")
            await w.proxy.change(granted.lease.id, granted.endpoint.token, change)
        assert len(w.receiver.calls) == 2


async def test_retry_after_is_kept() -> None:
    async with world(ManualClock()) as w:
        times: list[int] = []
        w.receiver.answer = lambda n: (
            times.append(w.clock.now_ms()),
            (429, {"retry-after": "100"}) if n == 0 else (200, {}),
        )[1]
        await w.grant()
        w.log.add()
        await pass_time(w, lambda: len(times) == 2, within_s=120)
        assert 100_000 <= times[1] - times[0] <= 110_000


async def test_an_endpoint_that_hangs_holds_no_other_up() -> None:
    async with world(leases_max=100) as w, receiving() as healthy:
        w.receiver.answer = lambda _: None
        for _ in range(CALLS_PER_HOST_MAX + 10):
            await w.grant()
        w.log.add()
        await w.receiver.got(CALLS_PER_HOST_MAX)
        await w.proxy.grant(
            request(url=healthy.url.replace("127.0.0.1", "localhost"), cursor="c0"), reader=ANYBODY
        )
        await healthy.got(1)
        assert w.receiver.connections == CALLS_PER_HOST_MAX


async def test_a_write_that_takes_long_keeps_no_slot_for_calls_from_another_lease() -> None:
    """Slots are for calls: while what their answers mean is being stored, the next leases are
    called.
    """
    async with world(leases_max=100) as w:
        for _ in range(2 * CALLS_PER_HOST_MAX):
            await w.grant()
        w.log.add()
        w.store.holds = lambda lease: lease.state is LeaseState.NOTIFIED
        await w.receiver.got(2 * CALLS_PER_HOST_MAX)
        assert w.store.held > 0, "nothing was held up"
        w.store.holds = lambda _: False
        await until(
            lambda: all(lease.state is LeaseState.NOTIFIED for lease in w.store.leases.values())
        )


async def test_others_have_their_turn_while_one_event_wakes_very_many() -> None:
    async with world(leases_max=3000) as w:
        w.receiver.answer = lambda _: None
        for _ in range(3000):
            await w.grant()
        told = w.log.tally.add(event_of(1), w.clock.now_ms())
        assert sum(1 for _ in told) == 3000, "between any two leases others may run"
        await w.receiver.got(CALLS_PER_HOST_MAX)
        assert w.receiver.connections == CALLS_PER_HOST_MAX
        assert (
            sum(lease.state is LeaseState.CALLING for lease in w.store.leases.values())
            <= IN_HAND_PER_HOST_MAX
        )


# Ending


async def test_after_the_end_was_answered_no_wake_up_is_started() -> None:
    async with world(ManualClock()) as w:
        granted = await w.grant()
        await w.proxy.end(granted.lease.id, granted.endpoint.token)
        w.log.add(5)
        await settle(w)
        assert (w.receiver.connections, w.store.leases) == (0, {})
        with pytest.raises(NoSuchLease):
            w.proxy.get(granted.lease.id, granted.endpoint.token)


async def test_a_lease_can_be_ended_while_its_call_hangs() -> None:
    async with world() as w:
        w.receiver.answer = lambda _: None
        granted = await w.grant()
        w.log.add()
        await w.receiver.got(1)
        async with asyncio.timeout(PATIENCE_S):
            await w.proxy.end(granted.lease.id, granted.endpoint.token)


async def test_a_lease_that_could_not_be_ended_goes_on() -> None:
    async with world() as w:
        granted = await w.grant()
        w.store.is_away = True
        with pytest.raises(Unavailable):
            await w.proxy.end(granted.lease.id, granted.endpoint.token)
        w.store.is_away = False
        w.log.add()
        await w.receiver.got(1)


@pytest.mark.parametrize("token", ["", "wrong", "0" * 48])
async def test_a_lease_is_for_who_has_its_token(token: str) -> None:
    async with world() as w:
        granted = await w.grant()
        with pytest.raises(NoSuchLease):
            w.proxy.get(granted.lease.id, token)
        with pytest.raises(NoSuchLease):
            await w.proxy.change(granted.lease.id, token, LeaseChange())
        with pytest.raises(NoSuchLease):
            await w.proxy.end(granted.lease.id, token)
        assert len(w.store.leases) == 1


async def test_a_lease_that_is_over_is_deleted() -> None:
    async with world(ManualClock(), lease("over", expires_at=1)) as w:
        await until(lambda: not w.store.leases)
        assert w.receiver.connections == 0


async def test_a_lease_lives_on_as_long_as_it_is_renewed() -> None:
    async with world(ManualClock()) as w:
        granted = await w.grant(ttl_s=100)
        for _ in range(5):
            w.clock.advance(90)
            await w.proxy.change(granted.lease.id, granted.endpoint.token, LeaseChange())
            await settle(w)
        assert kept(w).expires_at == w.clock.now_ms() + 100_000
        await pass_time(w, lambda: not w.store.leases, within_s=101)


# Asking twice


async def test_a_request_repeated_with_its_key_gets_the_same_lease_and_the_same_token() -> None:
    async with world() as w:
        first = await w.grant(idempotency_key="k" * 16)
        again = await w.grant(idempotency_key="k" * 16)
        assert (again.lease.id, again.endpoint, first.is_new, again.is_new) == (
            first.lease.id,
            first.endpoint,
            True,
            False,
        )
        assert len(w.store.leases) == 1


async def test_two_requests_with_one_key_at_the_same_time_make_one_lease() -> None:
    async with world() as w:
        granted = await asyncio.gather(*(w.grant(idempotency_key="k" * 16) for _ in range(10)))
        assert {one.endpoint for one in granted} == {granted[0].endpoint}
        assert sum(one.is_new for one in granted) == len(w.store.leases) == 1
        assert not w.proxy._granting


async def test_another_request_with_a_key_that_was_used_is_refused() -> None:
    async with world() as w:
        await w.grant(idempotency_key="k" * 16)
        with pytest.raises(KeyUsedBefore):
            await w.grant(idempotency_key="k" * 16, ttl_s=100)
        assert len(w.store.leases) == 1


async def test_without_a_key_two_requests_make_two_leases() -> None:
    """The control."""
    async with world() as w:
        assert (await w.grant()).lease.id != (await w.grant()).lease.id


# What is refused


async def test_what_cannot_be_granted_leaves_nothing_behind() -> None:
    async with world() as w:
        with pytest.raises(CursorError):
            await w.grant(cursor="x")
        with pytest.raises(EndpointRefused):
            await w.proxy.grant(request(url="http://10.0.0.1/", cursor="c0"), reader=ANYBODY)
        w.store.is_away = True
        with pytest.raises(Unavailable):
            await w.grant()
        assert (w.store.leases, w.proxy._leases.leases) == ({}, {})


async def test_leases_are_bounded() -> None:
    async with world(leases_max=2) as w:
        await w.grant()
        await w.grant()
        with pytest.raises(TooManyLeases):
            await w.grant()


async def test_a_change_that_is_refused_changes_nothing() -> None:
    async with world() as w:
        granted = await w.grant()
        inner, no_secret = Webhook(url="http://10.0.0.1/"), Webhook(url=w.receiver.url, secret="no")
        for change in ({"endpoint": inner}, {"cursor": "x"}, {"endpoint": no_secret}):
            with pytest.raises((EndpointRefused, CursorError, ValueError)):
                await w.proxy.change(
                    granted.lease.id, granted.endpoint.token, LeaseChange(**change)
                )
        w.store.is_away = True
        with pytest.raises(Unavailable):
            await w.proxy.change(granted.lease.id, granted.endpoint.token, LeaseChange(ttl_s=100))
        assert w.proxy.get(granted.lease.id, granted.endpoint.token) == granted.lease == kept(w)


def test_a_request_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="extra_forbidden"):
        LeaseRequest.model_validate(request().model_dump(mode="json") | {"more": 1})


# Who has the leases


async def test_a_proxy_without_partitions_grants_nothing() -> None:
    async with world(partitions=()) as w:
        with pytest.raises(Standby):
            await w.grant()


async def test_a_lease_of_another_partition_is_elsewhere_and_new_ones_are_made_at_home() -> None:
    async with world(partitions=(0, 1)) as w:
        for _ in range(5):
            assert (await w.grant()).lease.partition in (0, 1)
        far = next(f"{n:024x}" for n in range(100) if lease_record.partition_of(f"{n:024x}") == 5)
        with pytest.raises(Elsewhere) as found:
            w.proxy.get(far, "token")
        assert found.value.partition == 5


async def test_a_proxy_that_loses_a_partition_stops_calling_for_it_and_for_no_other() -> None:
    async with world(ManualClock()) as w:
        granted = [await w.grant() for _ in range(6)]
        gone = granted[0].lease.partition
        w.proxy.partition_lost(gone)
        w.log.add()
        await settle(w)
        woken = {orjson.loads(call.body)["lease"] for call in w.receiver.calls}
        assert woken == {one.lease.id for one in granted if one.lease.partition != gone}


async def test_a_proxy_without_recent_proof_that_a_lease_is_its_own_writes_before_it_calls() -> (
    None
):
    async with world(ManualClock()) as w:
        proofs: list[float] = []
        w.receiver.answer = lambda n: (
            proofs.append(w.clock.monotonic_s() - w.store.proved_at),
            (500 if n < 4 else 200, {}),
        )[1]
        await w.grant()
        w.log.add()
        await pass_time(w, lambda: kept(w).state is LeaseState.NOTIFIED)
        assert len(proofs) == 5
        assert max(proofs) == 0


async def test_a_lease_whose_key_is_missing_ends_the_proxy_and_stays() -> None:
    clock = ManualClock()
    store = MemoryStore(clock, {"1": lease("1", seals=sealer(bytes(32)))})
    async with proxying(MemoryLog(clock), store, clock, calls(clock)) as proxy:
        assert not proxy.is_ready
        with pytest.raises(ConfigError, match="which are not in lease_key_file"):
            await proxy.run()
    assert set(store.leases) == {"1"}


async def test_a_proxy_seals_anew_with_the_first_key_what_it_takes_over() -> None:
    clock, old, new = ManualClock(), bytes(32), bytes(range(32))
    async with receiving() as receiver:
        caller = calls(clock)
        log, store = MemoryLog(clock), MemoryStore(clock)
        store.leases = {
            str(n): lease(str(n), url=receiver.url, seals=sealer(old)) for n in range(20)
        }
        async with proxying(log, store, clock, caller, sealer=sealer(new, old), leases_max=100):
            await until(lambda: all(sealer(new).knows(one.sealed) for one in store.leases.values()))
        async with proxying(log, store, clock, caller, sealer=sealer(new), leases_max=100):
            log.add()
            assert len(await receiver.got(20)) == 20


@pytest.mark.parametrize(
    ("at", "when"), [(at, when) for at in range(1, 6) for when in ("before", "after")]
)
async def test_a_death_at_any_write_loses_no_wake_up_and_repeats_one_with_the_same_id(
    at: int, when: str
) -> None:
    """Writes: 1 the lease, 2 the fixed wake-up, 3 its acceptance, 4 and 5 the same of the second
    wake-up, a minute later.
    """
    clock = ManualClock()
    async with receiving() as receiver:
        caller = calls(clock)
        log, store = MemoryLog(clock), MemoryStore(clock, dies_at=(at, when))
        async with proxying(log, store, clock, caller) as first:
            granting = asyncio.create_task(
                first.grant(
                    request(url=receiver.url, cursor="c0", wake={"min_interval_s": 0}),
                    reader=ANYBODY,
                )
            )
            log.add()
            async with asyncio.timeout(PATIENCE_S):
                while not store.dead.is_set():
                    clock.advance(5)
                    await asyncio.sleep(0.01)
            granted = granting.done() and not granting.cancelled()
            granting.cancel()
        store.dies_at = None
        async with proxying(log, store, clock, caller):
            if not store.leases:
                assert not granted  # then the client was answered nothing, and does not sleep
                return
            (only,) = store.leases.values()
            async with asyncio.timeout(PATIENCE_S):
                while store.leases[only.id].wakes < 2:
                    clock.advance(5)
                    await asyncio.sleep(0.01)
        opened = sealer().open(only.id, only.sealed)
        bodies: dict[str, set[bytes]] = {}
        for call in receiver.calls:
            assert orjson.loads(call.body)["lease"] == only.id
            bodies.setdefault(call.id, set()).add(call.body)
        assert opened.url == receiver.url
        assert all(len(same) == 1 for same in bodies.values())
        assert len(receiver.calls) - len(bodies) <= 1


async def test_equal_requests_are_granted_one_by_one_also_behind_one_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world() as w:
        fails, goes_on = asyncio.Event(), asyncio.Event()
        puts: list[str] = []
        put = w.store.put

        async def slow_put(stored: lease_record.Lease) -> None:
            puts.append(stored.id)
            if len(puts) == 1:
                await fails.wait()
                raise Unavailable("Kafka is away")
            await goes_on.wait()
            await put(stored)

        monkeypatch.setattr(w.store, "put", slow_put)
        first, second = (asyncio.create_task(w.grant(idempotency_key="key-1")) for _ in range(2))
        await until(lambda: len(puts) == 1)
        fails.set()
        with pytest.raises(Unavailable):
            await first
        third = asyncio.create_task(w.grant(idempotency_key="key-1"))
        await settle(w)
        goes_on.set()
        granted = await asyncio.gather(second, third)
        assert len({each.endpoint.token for each in granted}) == 1
        assert [each.is_new for each in granted] == [True, False]
        assert w.proxy._granting == {}
