"""What one device may cost a bridge, by a clock of the test's."""

from __future__ import annotations

import pytest

from edgewake.cloud.bridge.admission import allowance
from edgewake.cloud.bridge.admission.allowance import (
    BY_MAPS,
    DAY_S,
    LETTER_HEAD_BYTES,
    LIFE_BYTES,
    LIFE_BYTES_MIN,
    LIFE_BYTES_PER_S,
    NAMES_BURST,
    NAMES_WAIT_S,
    USUAL_S,
    USUAL_S_PER_BYTE,
    Account,
    Allowance,
    DeviceConfig,
    LeftOut,
    Named,
    Room,
)

CONFIG = DeviceConfig(
    messages_per_s=100,
    bytes_per_s=10_000,
    busy_share=0.1,
    burst_s=2,
    letters_per_s=0.5,
    letters_burst=3,
    letter_bytes_per_day=86_400,
)


def _account() -> Account:
    return Allowance(CONFIG).account("dev", 0.0)


def test_usual_messages_pass_up_to_their_number_and_then_as_fast_as_they_may() -> None:
    account = _account()
    passed = 0
    while not account.wait_s(0.0):
        account.pay(10, USUAL_S)
        passed += 1
    assert passed == 200
    assert account.wait_s(0.5) == 0, "half a second later"
    for _ in range(50):
        assert account.wait_s(0.5) == 0
        account.pay(10, USUAL_S)
    assert account.wait_s(0.5) > 0


def test_bytes_and_processor_time_are_bounded_likewise_and_a_debt_is_waited_for() -> None:
    by_bytes, by_time = _account(), _account()
    by_bytes.pay(1_000_000, 0.0)
    assert by_bytes.wait_s(0.0) == pytest.approx(98)
    assert by_bytes.wait_s(99.0) == 0
    by_time.pay(1000, 0.2 + USUAL_S + 1000 * USUAL_S_PER_BYTE + 0.3)
    assert by_time.wait_s(0.0) == pytest.approx(3)
    assert by_time.wait_s(3.1) == 0


def test_a_message_that_takes_what_is_usual_for_its_size_costs_no_processor_time() -> None:
    account = _account()
    for _ in range(150):
        account.pay(60, USUAL_S)
    assert account.wait_s(0.0) == 0


def test_what_is_refused_costs_all_that_it_took() -> None:
    account = _account()
    account.pay_refused(1_000, 0.25)
    assert account.wait_s(0.0) == 1.0, "a debt of 0.05 s, at a tenth of a second in each"


def test_a_device_that_is_over_waits_a_second_at_least_and_never_has_more_than_its_burst() -> None:
    account = _account()
    for _ in range(201):
        account.pay(0, 0.0)
    assert account.wait_s(0.0) == 1.0
    assert account.wait_s(1000.0) == 0
    assert account.messages == 200


def test_dead_letters_are_whole_then_heads_then_counted() -> None:
    limits = DeviceConfig(letters_per_s=0.5, letters_burst=3, letter_bytes_per_day=10_000)
    account = Allowance(limits).account("dev", 0.0)
    assert [account.letter_room(6000, 0.0) for _ in range(4)] == [
        Room.WHOLE,
        Room.HEAD,
        Room.HEAD,
        Room.NONE,
    ]
    assert account.letter_room(LETTER_HEAD_BYTES, 2.0) is Room.WHOLE, "a small one costs no bytes"
    assert account.letter_room(6000, 86_400.0) is Room.WHOLE, "a day later"


def test_what_was_counted_is_told_once() -> None:
    all_of_them = Allowance(CONFIG)
    account = all_of_them.account("dev", 0.0)
    all_of_them.note_left_out(account, 7)
    all_of_them.note_left_out(account, 8)
    assert list(all_of_them.left_out()) == [LeftOut("dev", 2, 15)]
    assert list(all_of_them.left_out()) == []


def test_statuses_have_a_bound_of_their_own() -> None:
    account = _account()
    assert sum(account.may_say_status(0.0) for _ in range(100)) == 60
    assert account.may_say_status(1.0)


def test_the_devices_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowance, "DEVICES_MAX", 3)
    all_of_them = Allowance(CONFIG)
    first = all_of_them.account("dev-0", 0.0)
    for i in range(1, 4):
        all_of_them.account(f"dev-{i}", 0.0)
    assert all_of_them.account("dev-3", 0.0) is not first
    assert all_of_them.account("dev-0", 0.0) is not first, "forgotten"


def test_each_thing_has_a_devices_share_and_all_of_a_gateway_ten() -> None:
    all_of = Allowance(CONFIG)
    flooding = all_of.of_thing("meter-0", "gateway", 0.0)
    while not flooding.wait_s(0.0):
        flooding.pay(1, 0.0)
    quiet = all_of.of_thing("meter-1", "gateway", 0.0)
    assert quiet.wait_s(0.0) == 0, "one that floods waits, the others do not"
    assert all_of.of_thing("meter-0", "other", 0.0).wait_s(0.0) == 0, "nor by another gateway"
    assert all_of.account("meter-0", 0.0).wait_s(0.0) == 0, "nor a device of that name"
    for n in range(2, 11):
        more = all_of.of_thing(f"meter-{n}", "gateway", 0.0)
        while not more.wait_s(0.0):
            more.pay(1, 0.0)
    assert all_of.of_thing("meter-99", "gateway", 0.0).wait_s(0.0) > 0, "new names are no way out"


def test_names_that_somebody_invents_push_no_debt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowance, "DEVICES_MAX", 4)
    all_of = Allowance(CONFIG)
    loud, gateway = all_of.account("loud", 0.0), all_of.together("gateway", 0.0)
    loud.pay(1_000_000, 0.0)
    gateway.pay(1_000_000, 0.0)
    for n in range(20):
        all_of.account(f"invented-{n}", 0.0)
    assert all_of.account("loud", 0.0) is loud
    assert all_of.together("gateway", 0.0) is gateway


def test_names_in_use_are_kept_however_many_are_heard_of_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(allowance, "DEVICES_MAX", 10)
    all_of = Allowance(CONFIG)
    shared = all_of.of_all(BY_MAPS, 0.0)

    def used() -> list[Account]:
        return [
            all_of.account("device", 0.0),
            all_of.of_thing("meter", "gateway", 0.0),
            all_of.together("gateway", 0.0),
            all_of.of_name("lamp", shared, 0.0),
        ]

    first = used()
    for n in range(100):
        all_of.of_name(f"once-{n}", shared, 0.0)
        assert [a is b for a, b in zip(used(), first, strict=True)] == [True] * 4
    assert not all_of.is_known("once-0"), "others were forgotten"


def test_a_name_that_was_forgotten_and_returns_costs_nothing_that_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(allowance, "DEVICES_MAX", 3)
    all_of = Allowance(CONFIG)
    shared, gateway = all_of.of_all(BY_MAPS, 0.0), all_of.together("gateway", 0.0)
    all_of.of_name("lamp", shared, 0.0)
    all_of.of_thing("meter", "gateway", 0.0)
    for n in range(20):
        all_of.account(f"other-{n}", 0.0)
    assert not all_of.is_known("lamp")
    assert not all_of.is_known("meter|gateway")
    gateway = all_of.together("gateway", 0.0)
    shared.names = gateway.names = 0
    assert not all_of.of_name("lamp", shared, 0.0).is_one_too_many
    assert not all_of.of_thing("meter", "gateway", 0.0).is_one_too_many
    assert all_of.of_name("lamp-2", shared, 0.0).is_one_too_many, "the control: a new one"
    assert all_of.of_thing("meter-2", "gateway", 0.0).is_one_too_many


def test_what_was_named_is_remembered_for_a_day_and_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named = Named()
    named.note(1, 10.0)
    assert named.has(1, 10.0)
    assert named.has(1, DAY_S - 1)
    assert named.has(1, DAY_S + 11), "a day is over, another one has begun"
    assert not named.has(1, 2 * DAY_S + 20)
    monkeypatch.setattr(allowance, "NAMED_MAX", 10)
    for mark in range(100):
        named.note(mark, 2 * DAY_S + 20)
    known = [mark for mark in range(100) if named.has(mark, 2 * DAY_S + 20)]
    assert 10 <= len(known) <= 20
    assert known[-1] == 99, "the latest ones"


def test_words_about_its_life_have_an_allowance_of_their_own() -> None:
    account = _account()
    account.pay(1_000_000, 0.0)
    assert account.wait_s(0.0) > 0, "it owes for its data"
    told = sum(account.may_say_life(20, 0.0) for _ in range(10_000))
    assert told == LIFE_BYTES // LIFE_BYTES_MIN, "that is bounded, too"
    assert not account.may_say_life(20, 0.0)
    assert account.may_say_life(20, LIFE_BYTES_MIN / LIFE_BYTES_PER_S)
    assert not account.is_whole(1.0)


def test_a_gateway_names_so_many_things_in_a_day_and_those_it_named_stay() -> None:
    all_of = Allowance(CONFIG)
    named = [all_of.of_thing(f"meter-{n}", "gateway", 0.0) for n in range(NAMES_BURST)]
    assert not any(one.is_one_too_many for one in named)
    more = all_of.of_thing("one-more", "gateway", 0.0)
    assert more.is_one_too_many
    assert more.wait_s(0.0) == NAMES_WAIT_S
    assert more.letter_room(1, 0.0) is Room.WHOLE
    assert all_of.together("gateway", 0.0).letters < 10 * CONFIG.letters_burst, "the gateway pays"
    assert all_of.of_thing("meter-0", "gateway", 0.0).wait_s(0.0) == 0
    assert not all_of.of_thing("one-more", "other", 0.0).is_one_too_many
    mapped = all_of.of_all(BY_MAPS, 0.0)
    assert not all_of.of_name("lamp", mapped, 0.0).is_one_too_many
    mapped.names = 0
    assert all_of.of_name("lamp-2", mapped, 0.0).is_one_too_many
    assert not all_of.of_name("lamp", mapped, 0.0).is_one_too_many
    a_while_s = 2 * 86_400 / NAMES_BURST
    assert not all_of.of_thing("one-more", "gateway", a_while_s).is_one_too_many


def test_topics_that_name_no_device_have_a_share_each_and_one_together() -> None:
    all_of = Allowance(CONFIG)
    mapped = all_of.of_all(BY_MAPS, 0.0)
    loud = all_of.of_topic("sensors/a", mapped, 0.0)
    while not loud.wait_s(0.0):
        loud.pay(1, 0.0)
    assert all_of.of_topic("sensors/b", mapped, 0.0).wait_s(0.0) == 0
    for n in range(20):
        other = all_of.of_topic(f"sensors/{n}", mapped, 0.0)
        while not other.wait_s(0.0):
            other.pay(1, 0.0)
    assert all_of.of_topic("sensors/new", mapped, 0.0).wait_s(0.0) > 0
    assert all_of.account("a-device", 0.0).wait_s(0.0) == 0


def test_dead_letters_of_things_that_were_only_counted_are_told_by_their_names() -> None:
    all_of = Allowance(CONFIG)
    account = all_of.of_thing("meter-1", "gateway", 0.0)
    all_of.note_left_out(account, 7)
    assert list(all_of.left_out()) == [LeftOut("meter-1", 1, 7)]
