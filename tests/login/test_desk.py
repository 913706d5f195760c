"""Logins and sessions against a provider that errs, lies, is slow, dead and back."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from edgewake.cloud.login import desk as desk_module
from edgewake.cloud.login import provider as provider_module
from edgewake.cloud.login.desk import COOKIE_BYTES_MAX, LOGIN_S, Desk, LoginFailed, Over
from edgewake.cloud.login.provider import Provider
from edgewake.cloud.rights import issuers
from edgewake.cloud.rights.tries import OWN_MAX, OWN_S
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.errors import ConfigError, Unavailable
from tests.login.forged import Forged, config_of, logged_in, of_address
from tests.rights.forge import Maker, write
from tests.services import PATIENCE_S


class World:
    """A forged provider, a desk, and its clock, which begins now."""

    def __init__(self, forged: Forged, folder: Path, **more: Any) -> None:
        self.forged, self.folder = forged, folder
        self.keys = folder / "session.key"
        write(self.keys, secrets.token_hex(32))
        self.clock = FakeClock(now_ms=time.time_ns() // 1_000_000)
        self.desk = self.another(**more)

    def another(self, **more: Any) -> Desk:
        """Another server's desk."""
        config = config_of(self.forged, self.keys, **more)
        return Desk(
            config,
            Provider(config, self.clock),
            self.clock,
            secret=lambda: secrets.token_urlsafe(32),
            random_bytes=os.urandom,
        )


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with Forged().running() as forged:
        yield World(forged, tmp_path)


async def test_a_login_asks_with_pkce_state_and_nonce_and_opens_a_session(world: World) -> None:
    begun = await world.desk.begin("/#/streams/x", None)
    asked = of_address(begun)
    assert asked["redirect_uri"] == "http://127.0.0.1:8700/login/callback"
    assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
    seen, _ = await logged_in(world.desk, world.forged)
    assert (seen.session.subject, seen.session.groups) == ("ann", ("staff",))
    assert (await world.desk.look(seen.cookie)).session == seen.session
    (form,) = world.forged.forms
    assert len(form["code_verifier"][0]) >= 43
    assert form["client_id"] == ["edgewake"]


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"iss": "https://elsewhere.example"}, "iss"),
        ({"aud": "another"}, "aud"),
        ({"aud": ["edgewake", "another"]}, "azp"),
        ({"azp": "another"}, "azp"),
        ({"nonce": "of another login"}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"exp": 1}, "expired"),
        ({"exp": None}, "exp"),
        ({"iat": time.time() + 3600}, "not good yet"),
        ({"sub": None}, "sub"),
        ({"groups": {"staff": True}}, "groups"),
        ({"groups": ["g"] * 201}, "201"),
        ({"at_hash": "wrong"}, "at_hash"),
    ],
)
async def test_a_word_that_is_wrong_logs_nobody_in(
    world: World, claims: dict[str, Any], said: str
) -> None:
    world.forged.claims = claims
    with pytest.raises(LoginFailed, match=said) as failed:
        await logged_in(world.desk, world.forged)
    assert failed.value.status == 502


async def test_a_word_that_another_signed_logs_nobody_in(world: World) -> None:
    await logged_in(world.desk, world.forged)
    thief = Forged(port=world.forged.port, maker=Maker(), nonce="n")
    stolen = thief.answer("/token", {})[1]
    world.forged.token_answer = stolen
    with pytest.raises(LoginFailed, match="signature"):
        await logged_in(world.desk, world.forged)


async def test_new_keys_of_the_provider_are_found_when_a_token_names_them(world: World) -> None:
    await logged_in(world.desk, world.forged)
    world.forged.maker = Maker(kid="k2")
    world.clock.advance(provider_module.KEYS_AGAIN_S)
    seen, _ = await logged_in(world.desk, world.forged)
    assert seen.session.subject == "ann"


@pytest.mark.parametrize(
    ("changes", "status", "said"),
    [
        ({"state": "another"}, 400, "another login"),
        ({"pending": None}, 400, "not begun in this browser"),
        ({"pending": "AAAA"}, 400, "not begun in this browser"),
        ({"refused": "access_denied: no"}, 403, "access_denied: no"),
        ({"issuer": "https://elsewhere.example"}, 400, "does not come from"),
    ],
)
async def test_an_answer_that_is_not_to_this_login_is_refused_unasked(
    world: World, changes: dict[str, Any], status: int, said: str
) -> None:
    with pytest.raises(LoginFailed, match=said) as failed:
        await logged_in(world.desk, world.forged, **changes)
    assert failed.value.status == status
    assert world.forged.forms == [], "the code is not spent"


async def test_of_a_login_the_provider_is_asked_once(world: World) -> None:
    """Who comes back with one code after the other has the provider count it against us."""
    begun = await world.desk.begin("/", None)
    world.forged.token_answer, world.forged.status = {"error": "invalid_grant"}, 400

    async def comes_back(code: str) -> str:
        with pytest.raises(LoginFailed) as failed:
            await world.desk.finish(
                state=begun.state,
                code=code,
                issuer=None,
                refused="",
                pending=begun.cookie,
                client="192.0.2.1",
            )
        return str(failed.value)

    assert "refuses" in await comes_back("guess-0")
    assert {await comes_back(f"guess-{n}") for n in range(1, 20)} == {
        "this login is used already: begin again"
    }
    assert len(world.forged.forms) == 1
    world.forged.token_answer, world.forged.status = None, 200
    await logged_in(world.desk, world.forged)


async def test_a_login_may_be_tried_again_where_the_provider_was_away(world: World) -> None:
    begun = await world.desk.begin("/", None)
    world.forged.nonce = of_address(begun)["nonce"]
    world.forged.token_answer, world.forged.status = "later", 503
    answer = {"state": begun.state, "code": "c", "issuer": None, "refused": ""}
    with pytest.raises(LoginFailed) as failed:
        await world.desk.finish(**answer, pending=begun.cookie, client="192.0.2.1")
    assert failed.value.status == 503
    world.forged.token_answer, world.forged.status = None, 200
    seen, _ = await world.desk.finish(**answer, pending=begun.cookie, client="192.0.2.1")
    assert seen.session.subject == "ann"


async def test_a_provider_that_names_itself_must(world: World) -> None:
    world.forged.described = {"authorization_response_iss_parameter_supported": True}
    with pytest.raises(LoginFailed, match="does not come from"):
        await logged_in(world.desk, world.forged)
    await logged_in(world.desk, world.forged, issuer=world.forged.issuer)


async def test_a_login_ends_after_ten_minutes(world: World) -> None:
    begun = await world.desk.begin("/", None)
    world.clock.advance(LOGIN_S + 1)
    with pytest.raises(LoginFailed, match="10 min"):
        await world.desk.finish(
            state=begun.state,
            code="c",
            issuer=None,
            refused="",
            pending=begun.cookie,
            client="192.0.2.1",
        )


async def test_a_session_is_no_pending_login_and_a_changed_one_nothing(world: World) -> None:
    seen, _ = await logged_in(world.desk, world.forged)
    with pytest.raises(LoginFailed, match="not begun"):
        await logged_in(world.desk, world.forged, pending=seen.cookie)
    changed = seen.cookie[:-2] + ("AA" if seen.cookie[-2:] != "AA" else "BB")
    for text in (changed, "", "x" * 9000, (await world.desk.begin("/", None)).cookie):
        with pytest.raises(Over, match="not known"):
            await world.desk.look(text)


@pytest.mark.parametrize(
    ("described", "said"),
    [
        ({"issuer": "https://elsewhere.example"}, "calls itself 'https://elsewhere.example'"),
        ({"token_endpoint": None}, "token_endpoint"),
        ({"token_endpoint": "http://elsewhere.example/token"}, "token_endpoint.*expected https"),
        ({"code_challenge_methods_supported": ["plain"]}, "PKCE"),
    ],
)
async def test_a_provider_that_is_another_one_is_named(
    world: World, described: dict[str, Any], said: str
) -> None:
    world.forged.described = described
    with pytest.raises(LoginFailed, match=said) as failed:
        await world.desk.begin("/", None)
    assert failed.value.status == 502


@pytest.mark.parametrize(
    ("status", "answer", "expected", "said"),
    [
        (400, {"error": "invalid_grant", "error_description": "used"}, 403, "invalid_grant: used"),
        (401, {"error": "invalid_client"}, 403, "invalid_client"),
        (500, {}, 503, "answers 500"),
        (429, {}, 503, "answers 429"),
        (200, b"<html>", 503, "expected a JSON object"),
        (200, {"access_token": "a"}, 502, "id_token: missing"),
        (200, b"x" * (300 * 1024), 503, "more than 262144 bytes"),
        (302, {}, 403, "answers 302"),
    ],
)
async def test_what_a_token_endpoint_answers_wrongly_is_said(
    world: World, status: int, answer: Any, expected: int, said: str
) -> None:
    world.forged.status, world.forged.token_answer = status, answer
    with pytest.raises(LoginFailed, match=said) as failed:
        await logged_in(world.desk, world.forged)
    assert failed.value.status == expected


async def test_a_provider_that_is_silent_dead_and_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuers, "FETCH_S", 0.2)
    world.forged.is_silent = True
    with pytest.raises(LoginFailed, match="no answer within") as failed:
        await world.desk.begin("/", None)
    assert failed.value.status == 503
    asked = len(world.forged.asked)
    with pytest.raises(LoginFailed):
        await world.desk.begin("/", None)
    assert len(world.forged.asked) == asked, "who tries in a loop costs it nothing"
    world.forged.is_silent = False
    monkeypatch.undo()
    world.clock.advance(provider_module.AGAIN_S)
    await logged_in(world.desk, world.forged)


async def test_a_session_is_renewed_once_for_all_requests_and_says_what_is_new(
    world: World,
) -> None:
    import asyncio

    seen, _ = await logged_in(world.desk, world.forged)
    world.forged.forms.clear()
    world.clock.advance(world.desk.config.renew_s)
    world.forged.claims = {"groups": ["other"], "nonce": None}
    found = await asyncio.gather(*(world.desk.look(seen.cookie) for _ in range(20)))
    assert {one.session.groups for one in found} == {("other",)}
    assert [form["grant_type"] for form in world.forged.forms] == [["refresh_token"]]
    assert (await world.desk.look(seen.cookie)).cookie == found[0].cookie, "also for the old cookie"


async def test_a_session_that_the_provider_takes_back_is_over_here_and_for_its_copies(
    world: World,
) -> None:
    ended: list[str] = []
    world.desk.on_end.append(ended.append)
    seen, _ = await logged_in(world.desk, world.forged)
    world.forged.status, world.forged.token_answer = 400, {"error": "invalid_grant"}
    await world.desk.look(seen.cookie)
    world.clock.advance(world.desk.config.renew_s)
    with pytest.raises(Over, match="invalid_grant"):
        await world.desk.look(seen.cookie)
    assert ended == [seen.session.id]
    world.forged.status, world.forged.token_answer = 200, None
    with pytest.raises(Over):
        await world.desk.look(seen.cookie)


async def test_a_renewal_for_another_person_ends_the_session(world: World) -> None:
    seen, _ = await logged_in(world.desk, world.forged)
    world.clock.advance(world.desk.config.renew_s)
    world.forged.claims = {"sub": "bob"}
    with pytest.raises(Over, match="another person"):
        await world.desk.look(seen.cookie)


async def test_sessions_go_on_while_the_provider_is_away_and_no_longer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, _ = await logged_in(world.desk, world.forged)
    config = world.desk.config
    world.forged.is_silent = True
    monkeypatch.setattr(provider_module, "ASK_S", 0.2)
    world.clock.advance(config.renew_s)
    held = await world.desk.look(seen.cookie)
    assert held.session.groups == ("staff",)
    world.clock.advance(config.stale_s)
    with pytest.raises(Unavailable, match="no answer within"):
        await world.desk.look(held.cookie)
    world.forged.is_silent = False
    monkeypatch.undo()
    world.forged.claims = {"exp": world.clock.now_ms() / 1000 + 600, "iat": None}
    world.forged.claims["iat"] = world.clock.now_ms() / 1000
    back = await world.desk.look(held.cookie)
    assert back.session.checked_at == world.clock.now_ms()


async def test_without_a_refresh_token_a_session_ends_with_the_provider_s_word(
    world: World,
) -> None:
    given = world.forged.answer

    def without(path: str, form: Any) -> tuple[int, Any]:
        status, body = given(path, form)
        return status, {name: value for name, value in body.items() if name != "refresh_token"}

    world.forged.answer = without  # type: ignore[method-assign]
    seen, _ = await logged_in(world.desk, world.forged)
    assert 500_000 < seen.session.until - world.clock.now_ms() <= 611_000
    world.clock.advance(620)
    with pytest.raises(Over, match="is over"):
        await world.desk.look(seen.cookie)


async def test_every_session_ends_after_its_life(world: World) -> None:
    desk = world.another(life_s=60, renew_s=600)
    seen, _ = await logged_in(desk, world.forged)
    world.clock.advance(59)
    await desk.look(seen.cookie)
    world.clock.advance(2)
    with pytest.raises(Over):
        await desk.look(seen.cookie)


async def test_who_logs_out_is_out_here_at_once_and_elsewhere_when_it_is_renewed(
    world: World,
) -> None:
    elsewhere = world.another()
    seen, _ = await logged_in(world.desk, world.forged)
    world.forged.described = {"revocation_endpoint": f"{world.forged.issuer}/revoke"}
    assert (await elsewhere.look(seen.cookie)).session == seen.session
    assert await world.desk.end(seen.cookie) == ""
    with pytest.raises(Over, match="logged out"):
        await world.desk.look(seen.cookie)
    world.clock.advance(world.desk.config.renew_s)
    world.forged.status, world.forged.token_answer = 400, {"error": "invalid_grant"}
    with pytest.raises(Over):
        await elsewhere.look(seen.cookie)


async def test_session_keys_change_without_a_log_out(world: World) -> None:
    seen, _ = await logged_in(world.desk, world.forged)
    old = world.keys.read_text()
    write(world.keys, f"{secrets.token_hex(32)} # new\n{old}")
    world.desk._keys.look()
    assert (await world.desk.look(seen.cookie)).session == seen.session
    newer, _ = await logged_in(world.desk, world.forged)
    write(world.keys, world.keys.read_text().splitlines()[0])
    world.desk._keys.look()
    assert (await world.desk.look(newer.cookie)).session == newer.session
    with pytest.raises(Over, match="not known"):
        await world.desk.look(seen.cookie)


async def test_more_groups_than_fit_into_a_cookie_are_named(world: World) -> None:
    world.forged.claims = {"groups": [f"{n:040}" for n in range(200)]}
    with pytest.raises(LoginFailed, match=f"room for {COOKIE_BYTES_MAX}"):
        await logged_in(world.desk, world.forged)


@pytest.mark.parametrize("text", ["", "zz", "ab" * 16, "# none"])
def test_a_session_key_file_that_cannot_be_used_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "session.key"
    path.write_text(text)
    config = config_of(Forged(port=1), path)
    with pytest.raises(ConfigError, match=r"session_key_file.*64 hex digits"):
        Desk(
            config,
            Provider(config, FakeClock()),
            FakeClock(),
            secret=str,
            random_bytes=os.urandom,
        )


async def test_who_fails_again_and_again_asks_the_provider_no_more_and_keeps_nobody_out(
    world: World,
) -> None:
    world.forged.token_answer, world.forged.status = {"error": "invalid_grant"}, 400
    for _ in range(OWN_MAX):
        with pytest.raises(LoginFailed, match="refuses"):
            await logged_in(world.desk, world.forged)
    with pytest.raises(LoginFailed, match="too many logins from your address failed") as failed:
        await logged_in(world.desk, world.forged)
    assert (failed.value.status, failed.value.retry_s) == (429, 6)
    assert len(world.forged.forms) == OWN_MAX
    world.forged.token_answer, world.forged.status = None, 200
    for _ in range(2 * OWN_MAX):
        seen, _ = await logged_in(world.desk, world.forged, client="198.51.100.7")
    assert seen.session.subject == "ann", "who succeeds spends nothing"
    world.clock.advance(OWN_S)
    await logged_in(world.desk, world.forged)


async def comes_back(world: World) -> Any:
    """One of many who log in at once, each with a code of its own."""
    begun = await world.desk.begin("/", None)
    return await world.desk.finish(
        state=begun.state,
        code=of_address(begun)["nonce"],
        issuer=None,
        refused="",
        pending=begun.cookie,
        client="192.0.2.1",
    )


async def test_logins_at_the_same_time_are_no_failed_ones(world: World) -> None:
    """An office behind one address, while the provider is slow: the eleventh was refused."""
    world.forged.holds_tokens = asyncio.Event()
    coming = [asyncio.create_task(comes_back(world)) for _ in range(2 * OWN_MAX + 1)]
    async with asyncio.timeout(PATIENCE_S):
        while world.forged.asked.count("/token") < OWN_MAX:
            await asyncio.sleep(0.01)
        assert not any(one.done() for one in coming)
        assert world.forged.asked.count("/token") == OWN_MAX, "the others wait for their turn"
        world.forged.holds_tokens.set()
        found = await asyncio.gather(*coming)
    assert len({seen.session.id for seen, _ in found}) == 2 * OWN_MAX + 1


async def test_wrong_logins_at_the_same_time_are_as_few_as_one_after_the_other(
    world: World,
) -> None:
    world.forged.holds_tokens = asyncio.Event()
    world.forged.token_answer, world.forged.status = {"error": "invalid_grant"}, 400
    coming = [asyncio.create_task(comes_back(world)) for _ in range(3 * OWN_MAX)]
    async with asyncio.timeout(PATIENCE_S):
        while world.forged.asked.count("/token") < OWN_MAX:
            await asyncio.sleep(0.01)
        world.forged.holds_tokens.set()
        found = await asyncio.gather(*coming, return_exceptions=True)
    failed = [one.status for one in found if isinstance(one, LoginFailed)]
    assert (failed.count(403), failed.count(429)) == (OWN_MAX, 2 * OWN_MAX), failed
    assert world.forged.asked.count("/token") == OWN_MAX


async def test_a_provider_that_is_away_costs_nobody_a_try(world: World) -> None:
    world.forged.token_answer, world.forged.status = "later", 503
    for _ in range(OWN_MAX + 1):
        with pytest.raises(LoginFailed, match="answers 503"):
            await logged_in(world.desk, world.forged)
    world.forged.token_answer, world.forged.status = None, 200
    await logged_in(world.desk, world.forged)


async def test_who_waits_for_a_turn_waits_for_a_bounded_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_module, "TURN_S", 0.05)
    world.forged.holds_tokens = asyncio.Event()
    coming = [asyncio.create_task(comes_back(world)) for _ in range(OWN_MAX)]
    async with asyncio.timeout(PATIENCE_S):
        while world.forged.asked.count("/token") < OWN_MAX:
            await asyncio.sleep(0.01)
        with pytest.raises(LoginFailed, match="under way") as failed:
            await comes_back(world)
        world.forged.holds_tokens.set()
        await asyncio.gather(*coming)
    assert failed.value.status == 503


async def test_a_provider_that_hangs_is_asked_once_by_all_who_wait_with_an_old_description(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other asked it, each for as long as it may take."""
    await world.desk.begin("/", None)
    asked = len(world.forged.asked)
    world.forged.is_silent = True
    monkeypatch.setattr(issuers, "FETCH_S", 0.2)
    for _ in range(2):
        world.clock.advance(provider_module.DESCRIBED_S + 1)
        await asyncio.gather(*(world.desk.begin("/", None) for _ in range(20)))
        asked += 1
        assert len(world.forged.asked) == asked
    world.clock.advance(provider_module.AGAIN_S + 1)
    await world.desk.begin("/", None)
    assert len(world.forged.asked) == asked + 1, "it is asked again soon"


async def test_a_provider_that_describes_another_for_a_while_keeps_nobody_out(
    world: World,
) -> None:
    """A page of its maintenance, say: sessions were held as if it were away, logins refused."""
    await world.desk.begin("/", None)
    asked = len(world.forged.asked)
    world.forged.described = {"issuer": "https://maintenance.example"}
    world.clock.advance(provider_module.DESCRIBED_S + 1)
    await asyncio.gather(*(world.desk.begin("/", None) for _ in range(20)))
    assert len(world.forged.asked) == asked + 1, "what was described before is believed"


async def test_who_tries_in_a_loop_costs_a_wrong_provider_nothing(world: World) -> None:
    world.forged.described = {"issuer": "https://elsewhere.example"}
    coming = (world.desk.begin("/", None) for _ in range(20))
    failed = await asyncio.gather(*coming, return_exceptions=True)
    assert {getattr(one, "status", None) for one in failed} == {502}
    assert len(world.forged.asked) == 1, "each asked it, one after the other"
    world.forged.described = {}
    world.clock.advance(provider_module.AGAIN_S)
    await logged_in(world.desk, world.forged)


async def test_many_who_come_at_once_have_the_provider_describe_itself_once(world: World) -> None:
    await asyncio.gather(*(world.desk.begin("/", None) for _ in range(50)))
    assert world.forged.asked.count("/.well-known/openid-configuration") == 1


async def test_a_session_that_fell_due_is_asked_about_and_goes_on_or_is_over(world: World) -> None:
    seen, _ = await logged_in(world.desk, world.forged)
    session = seen.session
    assert await world.desk.renewed(session) == session
    world.clock.advance(world.desk.config.renew_s)
    assert not world.desk.holds(session)
    after = await world.desk.renewed(session)
    assert after.fresh_until > session.fresh_until
    assert world.desk.holds(session)
    assert await world.desk.renewed(session) == after, "nobody is asked again"
    await world.desk.end(seen.cookie or "")
    with pytest.raises(Over, match="logged out"):
        await world.desk.renewed(session)
