"""What a lease may count and show by its right: decided without I/O."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgewake.cloud.log.decode import DATA, Event
from edgewake.cloud.log.filters.filter import compile_where
from edgewake.cloud.log.filters.filter_syntax import parse_where
from edgewake.cloud.log.filters.filter_taken import LISTED_MAX
from edgewake.cloud.login.config import LoginConfig
from edgewake.cloud.login.reader import People, people_of
from edgewake.cloud.login.session import begun
from edgewake.cloud.push.counting.matching import Matcher, demand_of
from edgewake.cloud.push.leases import lease_rights
from edgewake.cloud.push.leases.lease_requests import hash_of
from edgewake.cloud.rights.config import (
    ANYBODY_CONFIG,
    GrantConfig,
    IssuerConfig,
    RightsConfig,
    RoleConfig,
)
from edgewake.cloud.rights.names import Names
from edgewake.cloud.rights.principal import ANYBODY, Action, Grant, Principal, Proof
from edgewake.cloud.rights.rights import End, Rights
from edgewake.protocol.errors import FilterError
from edgewake.protocol.leases.lease import LeaseRequest, Subscription
from edgewake.protocol.leases.lease_record import Lease, decode, encode
from edgewake.protocol.ops.proof import Kind
from edgewake.protocol.ops.publication import Publication
from tests.push.builders import ManualClock
from tests.push.builders import lease as a_lease
from tests.rights.forge import AUDIENCE, ISSUER, NOW_S, Maker, key_set, write

WAKE = frozenset({Action.WAKE})


def someone(*grants: tuple[str, tuple[str, ...] | None, tuple[str, ...] | None]) -> Principal:
    return Principal(
        "someone",
        tuple(
            Grant(
                WAKE,
                Names.of([stream]),
                None if devices is None else Names.of(devices),
                None if fields is None else Names.of(fields),
            )
            for stream, devices, fields in grants
        ),
        Proof(Kind.KEY, b"1"),
    )


def passes(condition: str | None, **fields: Any) -> bool:
    return condition is None or compile_where(condition).passes(fields)


@pytest.mark.parametrize(
    ("devices", "seen", "hidden"),
    [
        (("car-7",), ["car-7"], ["car-8", None]),
        (("car-7", "car-8"), ["car-7", "car-8"], ["car-9"]),
        (("bus-*",), ["bus-", "bus-1"], ["car-1", "xbus-1"]),
        (("b_s-*", "x%*"), ["b_s-1", "x%1"], ["bus-1", "x1", "xy1"]),
        (("it's", "a\\b", "a!b*"), ["it's", "a\\b", "a!bc"], ["its", "ab", "a!c"]),
        ((), [], ["car-7", None]),
    ],
)
def test_devices_become_a_condition(
    devices: tuple[str, ...], seen: list[str], hidden: list[str | None]
) -> None:
    condition = lease_rights.condition_of(someone(("s", devices, None)), ["s"])
    scope = someone(("s", devices, None)).scope(Action.WAKE, "s")
    assert scope is not None
    for device in (*seen, *hidden):
        assert scope.sees(device) is (device in seen)
        assert passes(condition, device=device, stream="s") is (device in seen), condition


def test_a_condition_is_found_by_the_index() -> None:
    condition = lease_rights.condition_of(someone(("s", ("car-7",), None)), ["s"])
    assert demand_of(parse_where(str(lease_rights.counted("n > 5", condition)))) is not None
    patterns = lease_rights.condition_of(someone(("s", ("car-7", "bus-*"), None)), ["s"])
    assert demand_of(parse_where(str(lease_rights.counted("n > 5", patterns)))) is not None
    assert lease_rights.counted("n > 5", None) == "n > 5"
    assert lease_rights.counted(None, condition) == condition
    counted = lease_rights.counted("n > 5 OR 1 = 1", condition)
    assert not passes(counted, device="car-8", n=6)


def test_a_right_over_many_devices_can_hold_a_lease() -> None:
    """200 names were more than a filter's text may have; the client's own text is bounded still."""
    cars = tuple(f"vehicle-{n:04d}" for n in range(LISTED_MAX))
    reader = someone(("s", cars, None))
    condition = lease_rights.condition_of(reader, ["s"])
    own = Subscription(streams=("s",), where="n > 5")
    lease_rights.check_fields(reader, own)
    matcher: Matcher[str] = Matcher()
    where = lease_rights.counted(own.where, condition)
    matcher.add(where, "lease")
    for device, n, seen in ((cars[-1], 6, True), (cars[0], 5, False), ("other", 6, False)):
        event = Event(DATA, {"stream": "s", "device": device, "n": n}, b"")
        assert list(matcher.matches(event)) == ["lease"] * seen
    assert matcher.scanned == 0, "the index finds it"
    with pytest.raises(FilterError, match=r"right names more devices .* pattern"):
        lease_rights.condition_of(someone(("s", (*cars, "one-more"), None)), ["s"])
    long = ", ".join(f"'{car}'" for car in cars[:200])
    with pytest.raises(FilterError, match="expected at most 1024"):
        lease_rights.check_fields(reader, Subscription(streams=("s",), where=f"device IN ({long})"))


def test_a_condition_for_each_stream() -> None:
    reader = someone(("a", ("car-7",), None), ("b", None, None), ("q", ("car-8",), None))
    condition = lease_rights.condition_of(reader, ["a", "b", "q"])
    told = [
        ({"stream": "a", "device": "car-7"}, True),
        ({"stream": "a", "device": "car-8"}, False),
        ({"stream": "b", "device": "car-8"}, True),
        ({"query": "q", "device": "car-8"}, True),
        ({"query": "q", "device": "car-7"}, False),
        ({"query": "q"}, False),
    ]
    assert [passes(condition, **fields) for fields, _ in told] == [seen for _, seen in told]
    assert lease_rights.condition_of(ANYBODY, ["a", "b"]) is None


def test_a_filter_names_no_field_that_is_hidden() -> None:
    reader = someone(("s", ("car-7",), ("speed",)))
    for where, select in (("speed > 5", "device, speed * 2 AS s"), (None, "*"), ("t > 5", None)):
        lease_rights.check_fields(reader, Subscription(streams=("s",), where=where, select=select))
    for where, select in (("secret = 'x'", None), ("1 = 1 OR no_such > 4", None), (None, "secret")):
        with pytest.raises(FilterError, match="expected one that you may read"):
            lease_rights.check_fields(
                reader, Subscription(streams=("s",), where=where, select=select)
            )
    some = someone(("s", ("car-7",), ("speed",)), ("s", ("car-8",), None))
    with pytest.raises(FilterError):
        lease_rights.check_fields(some, Subscription(streams=("s",), where="secret = 'x'"))


def leased(
    reader: Principal, select: str | None = None, streams: tuple[str, ...] = ("s",)
) -> Lease:
    lease = a_lease("l1").but(
        streams=streams, select=select, right=lease_rights.right_of(reader, streams)
    )
    assert decode(encode(lease)) == lease
    return lease


def test_previews_are_cut() -> None:
    event = {"stream": "s", "device": "car-7", "seq": 1, "speed": 5, "secret": "x"}
    seen = leased(someone(("s", ("car-7",), ("speed",))))
    assert lease_rights.previews(seen, [event]) == [
        {name: value for name, value in event.items() if name != "secret"}
    ]
    assert lease_rights.previews(seen, [event | {"device": "car-8"}]) == []
    assert lease_rights.previews(leased(ANYBODY), [event]) == [event]
    assert lease_rights.previews(leased(ANYBODY, "secret"), [event]) == [{"secret": "x"}]
    assert lease_rights.previews(
        leased(someone(("s", ("car-7",), ("speed",))), "secret, speed"), [event]
    ) == [{"secret": None, "speed": 5}]


ROLES = {
    "cars": RoleConfig(grants=(GrantConfig(streams=("s",), devices=("$device",)),), lease_s=3600.0),
    "short": RoleConfig(grants=(GrantConfig(streams=("s",)),)),
}


async def test_a_right_is_looked_at_again(tmp_path: Path) -> None:
    clock, maker = ManualClock(round(NOW_S * 1000)), Maker()
    keys = write(tmp_path / "keys", "anna cars annas-own-key-000002 car-7 car-8")
    issuer_file = write(tmp_path / "issuer.json", key_set(maker))
    revoked = write(tmp_path / "revoked", "")
    issuer = IssuerConfig(
        issuer=ISSUER,
        audience=AUDIENCE,
        jwks_file=issuer_file,
        roles=("cars", "short"),
        leeway_s=0.0,
    )
    rights = Rights(
        RightsConfig(roles=ROLES, key_file=keys, revoked_file=revoked, issuers=(issuer,)), clock
    )

    def end(lease: Lease) -> End | None:
        rights.look()
        return lease_rights.end_of(lease, rights, now=clock.now_ms())

    by_key = leased(await rights.principal(b"annas-own-key-000002"))
    long = leased(await rights.principal(maker.token(edgewake_role="cars", device="a", sub="b")))
    short = leased(await rights.principal(maker.token(edgewake_role="short")))
    assert [end(lease) for lease in (by_key, long, short)] == [None] * 3
    assert end(leased(ANYBODY)) is End.REVOKED, "nobody may any more without a key"
    write(keys, "anna cars annas-own-key-000002 car-7 car-8 car-9")
    assert end(by_key) is None, "who sees more sees what the lease shows"
    write(keys, "anna short annas-own-key-000002")
    assert end(by_key) is None, "by another role, too"
    write(keys, "anna cars annas-own-key-000002 car-7")
    assert end(by_key) is End.REVOKED
    clock.advance(600)
    assert [end(lease) for lease in (long, short)] == [None, End.EXPIRED]
    write(issuer_file, key_set(Maker(kid="next")))
    assert end(long) is None, "an issuer changes its keys, and the lease outlives its token"
    write(revoked, "sub b")
    assert end(long) is End.REVOKED
    write(revoked, "")
    assert end(long) is None
    clock.advance(3600)
    assert end(long) is End.EXPIRED


FIELDS = ("speed", "lat")


@pytest.mark.parametrize(
    ("now", "why"),
    [
        ({}, None),
        ({"fields": (*FIELDS, "lon")}, None),
        ({"fields": None, "devices": None}, None),
        ({"fields": ("speed",)}, End.REVOKED),
        ({"devices": ("car-8",)}, End.REVOKED),
        ({"streams": ("other",)}, End.REVOKED),
        ({"actions": (Action.READ,)}, End.REVOKED),
        ({"devices": ("$depot",)}, End.REVOKED),
    ],
)
@pytest.mark.parametrize("kind", ["token", "login"])
async def test_what_a_token_or_login_left_behind_follows_its_role(
    tmp_path: Path, kind: str, now: dict[str, Any], why: End | None
) -> None:
    """The servers start again with another configuration; the token's lease may outlive it."""
    clock, maker = ManualClock(round(NOW_S * 1000)), Maker()
    keys = write(tmp_path / "issuer.json", key_set(maker))
    session_keys = write(tmp_path / "session.key", "ab" * 32)
    issuer = IssuerConfig(issuer=ISSUER, audience=AUDIENCE, jwks_file=keys, roles=("cars",))
    login = LoginConfig(
        issuer="http://127.0.0.1:1",
        client_id="edgewake",
        url="http://127.0.0.1:2",
        session_key_file=session_keys,
        groups={"drivers": "cars"},
        claims=("device", "depot"),
    )

    def started(**said: Any) -> tuple[Rights, People]:
        grant: dict[str, Any] = {"streams": ("s",), "devices": ("$device",), "fields": FIELDS}
        role = RoleConfig(grants=(GrantConfig(**grant | said),), lease_s=3600.0)
        rights = Rights(RightsConfig(roles={"cars": role}, issuers=(issuer,)), clock)
        people = people_of(login, rights, clock)
        assert people is not None
        return rights, people

    before, people = started()
    if kind == "token":
        reader = await before.principal(maker.token(edgewake_role="cars", device=["car-7"]))
    else:
        claims = {"sub": "anna", "groups": ["drivers", "others"], "device": ["car-7"]}
        until = round(NOW_S * 1000) + 60_000
        session = begun(
            login, claims, session_id="1", refresh="", token_until=until, now=round(NOW_S * 1000)
        )
        reader = people.reader(session)
    lease, after = leased(reader), started(**now)[0]
    assert lease_rights.end_of(lease, before, now=clock.now_ms()) is None
    assert lease_rights.end_of(lease, after, now=clock.now_ms()) is why
    delivery = lease_rights.right_of(reader, ("s",), Action.READ)
    found = lease_rights.end_of_right(
        delivery, ("s",), after, now=clock.now_ms(), action=Action.READ
    )
    assert found is why


def a_role(*sets: str) -> RoleConfig:
    return RoleConfig(grants=(GrantConfig(streams=("s",)), GrantConfig(sets=sets)))


async def test_a_lease_holds_while_its_named_set_may_be_used(tmp_path: Path) -> None:
    """A set that is taken out of its role ends it; one that it never used does not."""
    clock = ManualClock(round(NOW_S * 1000))
    keys = write(tmp_path / "keys", "anna cars annas-own-key-000002")
    both = a_role("north", "south")

    def rights(role: RoleConfig) -> Rights:
        return Rights(RightsConfig(roles={"cars": role}, key_file=keys), clock)

    anna = await rights(both).principal(b"annas-own-key-000002")
    uses = a_lease("l1").but(
        streams=("s",),
        right=lease_rights.right_of(anna, ("s",), where="n > 1 AND device IN SET('north')"),
    )
    plain = leased(anna)
    for held, why in ((both, None), (a_role("south"), End.REVOKED)):
        assert lease_rights.end_of(uses, rights(held), now=clock.now_ms()) is why
        assert lease_rights.end_of(plain, rights(held), now=clock.now_ms()) is None
    kept = lease_rights.reader_of(uses.right, ("s",), Action.READ)
    assert (kept.may_use("north"), kept.may_use("south")) == (True, False)


async def test_a_token_that_is_not_expired_needs_its_issuers_key(tmp_path: Path) -> None:
    clock, maker = ManualClock(round(NOW_S * 1000)), Maker()
    path = write(tmp_path / "issuer.json", key_set(maker))
    issuer = IssuerConfig(issuer=ISSUER, audience=AUDIENCE, jwks_file=path, role="cars")
    rights = Rights(RightsConfig(roles=ROLES, issuers=(issuer,)), clock)
    anna = await rights.principal(maker.token(device="a"))
    lease = leased(anna)
    assert lease_rights.end_of(lease, rights, now=clock.now_ms()) is None
    # Without the claims it was believed until it expired, with every right that there is.
    bare = leased(replace(anna, claims=None))
    assert lease_rights.end_of(bare, rights, now=clock.now_ms()) is End.REVOKED
    write(path, key_set(Maker(kid="next")))
    rights.look()
    assert lease_rights.end_of(lease, rights, now=clock.now_ms()) is End.REVOKED


def test_leases_of_before_are_anybodys() -> None:
    rights = Rights(ANYBODY_CONFIG, ManualClock())
    assert lease_rights.end_of(a_lease("l1"), rights, now=0) is None


def test_a_repeated_request_of_another_is_another() -> None:
    request = LeaseRequest.model_validate(
        {
            "subscription": {"streams": ["s"]},
            "cursor": "c",
            "endpoint": {"url": "http://127.0.0.1/hook"},
        }
    )
    others = [ANYBODY, someone(("s", None, None)), Principal("b", (), Proof(Kind.KEY, b"2"))]
    assert len({hash_of(request, reader) for reader in others}) == 3


def reader(*publications: str, devices: tuple[str, ...] | None = None) -> Principal:
    both = frozenset({Action.READ, Action.WAKE})
    of = None if devices is None else Names.of(devices)
    grant = Grant(both, Names.of([]), of, None, Names.of(publications))
    return Principal("reader", (grant,), Proof(Kind.KEY, b"1"))


def test_a_right_to_a_publication_is_to_it_alone_whatever_streams_it_has() -> None:
    text = lease_rights.right_of(reader("p"), ("s",), Action.READ, publication="p")
    for streams in (("s",), ("other",)):
        kept = lease_rights.reader_of(text, streams, Action.READ)
        assert kept.may_open(Action.READ, "p")
        assert not kept.may_open(Action.READ, "q")
        assert not kept.may(Action.READ, "s")
        assert lease_rights.covers(reader("p"), text, streams, Action.READ)
        assert not lease_rights.covers(reader("q"), text, streams, Action.READ)
        assert not lease_rights.covers(someone(("s", None, None)), text, streams, Action.READ)


def test_a_narrower_right_to_a_publication_shows_less() -> None:
    wide, narrow = reader("p"), reader("p", devices=("car-1",))
    text = lease_rights.right_of(narrow, ("s",), Action.READ, publication="p")
    scope = lease_rights.reader_of(text, ("s",), Action.READ).scope_of_publication(Action.READ, "p")
    assert scope is not None
    assert (scope.sees("car-1"), scope.sees("car-2")) == (True, False)
    assert lease_rights.covers(wide, text, ("s",), Action.READ)
    assert lease_rights.sees_more(wide, text, ("s",), Action.READ)
    assert not lease_rights.sees_more(narrow, text, ("s",), Action.READ)
    of_wide = lease_rights.right_of(wide, ("s",), Action.READ, publication="p")
    assert not lease_rights.covers(narrow, of_wide, ("s",), Action.READ)


def test_what_anybody_may_open_is_kept_as_a_right_to_it() -> None:
    """Without one a delivery would be one of the streams themselves."""
    text = lease_rights.right_of(ANYBODY, ("s",), Action.READ, publication="p")
    assert not lease_rights.reader_of(text, ("s",), Action.READ).may(Action.READ, "s")


HARBOUR = Publication(
    name="p",
    streams=("s",),
    where="zone = 'north'",
    fields=("n",),
    version=3,
    changed_at=0,
    changed_by="a test",
)


def published_lease(who: Principal, **more: Any) -> Lease:
    right = lease_rights.right_of(who, ("s",), publication="p", of=HARBOUR)
    return a_lease("l1").but(streams=("s",), right=right, **more)


def test_a_lease_of_a_publication_counts_what_that_chooses_of_what_its_reader_sees() -> None:
    everything = lease_rights.condition_of_publication(reader("p"), HARBOUR)
    some = lease_rights.condition_of_publication(reader("p", devices=("car-1",)), HARBOUR)
    for device, zone, in_all, in_some in (
        ("car-1", "north", True, True),
        ("car-2", "north", True, False),
        ("car-1", "south", False, False),
    ):
        assert passes(everything, device=device, zone=zone) is in_all
        assert passes(some, device=device, zone=zone) is in_some
    bare = HARBOUR.model_copy(update={"where": None})
    assert lease_rights.condition_of_publication(reader("p"), bare) is None


def test_its_filter_names_what_the_publication_shows_and_nothing_else() -> None:
    for where in ("n > 1", "device = 'car-1'"):
        own = Subscription(streams=("s",), where=where)
        lease_rights.check_shown_fields(reader("p"), own, HARBOUR)
    for hidden in (
        Subscription(streams=("s",), where="zone = 'north'"),
        Subscription(streams=("s",), select="zone"),
    ):
        with pytest.raises(FilterError, match="zone"):
            lease_rights.check_shown_fields(reader("p"), hidden, HARBOUR)


def test_its_previews_show_what_the_publication_shows() -> None:
    event = {"stream": "s", "device": "car-1", "n": 1, "zone": "north"}
    other = event | {"device": "car-2"}
    lease = published_lease(reader("p", devices=("car-1",)))
    assert lease_rights.previews(lease, [event, other]) == [
        {"stream": "s", "device": "car-1", "n": 1}
    ]


def test_it_ends_where_its_publication_is_another_one() -> None:
    lease, rights = published_lease(reader("p")), Rights(ANYBODY_CONFIG, ManualClock(0))
    asked: list[tuple[str, int]] = []

    def end(changed: bool) -> End | None:
        def has_changed(name: str, version: int) -> bool:
            asked.append((name, version))
            return changed

        kept = lease.but(right=lease_rights.right_of(ANYBODY, ("s",), publication="p", of=HARBOUR))
        return lease_rights.end_of(kept, rights, now=0, has_changed=has_changed)

    assert (end(False), end(True)) == (None, End.REVOKED)
    assert asked == [("p", 3)] * 2
