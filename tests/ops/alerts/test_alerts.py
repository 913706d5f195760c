"""Alerts on a running operations server: judged, told, acknowledged, and through its death."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.ops.device import DeviceSeen
from tests.bridge.running import read
from tests.ops.alerts.conftest import Alerts, configuration
from tests.ops.alerts.receivers import SECRET, Hook, Mail, text_of
from tests.ops.service import running
from tests.services import wait_until

pytestmark = pytest.mark.services


def test_a_reading_raises_an_alert_that_reaches_people_and_its_end_too(
    alerts: Alerts, receiver: Hook, mailbox: Mail
):
    stream = alerts.stream()
    hook = alerts.destination("hook", receiver.url, SECRET)
    mail = alerts.destination("mail", mailbox.address)
    rule = alerts.rule(
        "hot",
        text="Somewhere it is too hot",
        stream=stream,
        when="temperature > 30",
        until="temperature < 28",
        value="temperature",
        tell=[hook, mail],
    )
    alerts.send(stream, "oven", 20.0, 31.5)
    wait_until(lambda: receiver.ids() != [] and mailbox.letters != [], "both are told")
    (call,) = receiver.calls
    assert (call["rule"], call["firing"], call["resolved"]) == ("hot", ["oven"], [])
    assert "oven: temperature 31.5 °C firing since" in call["body"]
    assert (call["field"], call["unit"], call["values"]) == ("temperature", "°C", {"oven": "31.5"})
    (letter,) = mailbox.letters
    assert "oven: temperature 31.5 °C firing since" in text_of(letter)
    assert letter["To"] == "oncall@example.org"
    assert "hot: 1 firing" in str(letter["Subject"])
    alerts.send(stream, "oven", 29.0)
    alerts.send(stream, "oven", 27.0)
    wait_until(lambda: len(receiver.calls) == 2 and len(mailbox.letters) == 2, "its end is told")
    assert receiver.calls[1]["resolved"] == ["oven"]
    (alert,) = alerts.ask("GET", f"/v1/alerts/{rule}")["alerts"]
    assert [one["what"] for one in alert["history"]] == [
        "pending",
        "firing",
        "told",
        "resolved",
        "told",
    ]


@pytest.mark.long
def test_a_receiver_that_is_away_is_told_later_with_the_same_id(
    alerts: Alerts, receiver: Hook, unique: Callable[[str], str]
):
    stream = alerts.stream()
    receiver.status = 503
    hook = alerts.destination("hook", receiver.url, SECRET)
    rule = alerts.rule(unique("r"), stream=stream, when="temperature > 30", tell=[hook])
    alerts.send(stream, "oven", 31.0)
    wait_until(lambda: len(receiver.ids()) == 1, "it is tried")

    def last_error() -> str:
        rows = alerts.ask("GET", "/v1/destinations")["items"]
        (error,) = [row["last_error"] for row in rows if row["name"] == hook]
        return str(error)

    wait_until(last_error, "it is said")
    assert alerts.ask("GET", f"/v1/alerts/{rule}")["notes"][0]["state"] == "waiting"
    receiver.status = 204
    wait_until(lambda: len(receiver.ids()) == 2, "it is tried again")
    assert len(set(receiver.ids())) == 1
    wait_until(
        lambda: alerts.ask("GET", f"/v1/alerts/{rule}")["notes"][0]["state"] == "sent", "it is sent"
    )
    assert alerts.ask("GET", f"/v1/alerts/{rule}")["notes"][0]["attempts"] == 2


@pytest.mark.parametrize(
    ("point", "attempts"),
    [
        pytest.param("alerts.begun", 1, id="before it was sent", marks=pytest.mark.long),
        pytest.param("alerts.tried", 2, id="after it was sent"),
    ],
)
def test_a_server_that_is_killed_around_a_note_loses_none_and_gives_no_second_id(
    kafka_of_alerts: KafkaConfig,
    tmp_path: Path,
    receiver: Hook,
    unique: Callable[[str], str],
    point: str,
    attempts: int,
):
    lines = configuration(tmp_path)
    name = unique("r")
    env = {"EDGEWAKE_FAILPOINT": f"{point}@{tmp_path / 'now'}"}
    with running(kafka_of_alerts.bootstrap, tmp_path, lines, env) as ops:
        alerts = Alerts(ops, kafka_of_alerts)
        stream = alerts.stream()
        hook = alerts.destination("hook", receiver.url, SECRET)
        alerts.rule(name, stream=stream, when="temperature > 30", tell=[hook])
        (tmp_path / "now").touch()
        alerts.send(stream, "oven", 31.0)
        wait_until(lambda: not ops.process.is_running(), "it dies there")
        assert len(receiver.ids()) == attempts - 1
    with running(kafka_of_alerts.bootstrap, tmp_path, lines) as ops:
        alerts = Alerts(ops, kafka_of_alerts)
        wait_until(lambda: len(receiver.ids()) == attempts, "it is sent", timeout_s=120)
        assert len(set(receiver.ids())) == 1
        alerts.send(stream, "oven", 27.0)
        wait_until(lambda: len(receiver.ids("resolved")) == 1, "its end is told")
        assert len(receiver.ids()) == attempts


@pytest.mark.long
@pytest.mark.parametrize(("point", "told"), [("alerts.begun", 0), ("alerts.tried", 1)])
def test_the_control_of_it_without_the_rows_that_were_kept_the_same_death_loses_the_alert(
    kafka_of_alerts: KafkaConfig,
    tmp_path: Path,
    receiver: Hook,
    unique: Callable[[str], str],
    point: str,
    told: int,
):
    lines = configuration(tmp_path)
    name = unique("r")
    env = {"EDGEWAKE_FAILPOINT": f"{point}@{tmp_path / 'now'}"}
    with running(kafka_of_alerts.bootstrap, tmp_path, lines, env) as ops:
        alerts = Alerts(ops, kafka_of_alerts)
        stream = alerts.stream()
        hook = alerts.destination("hook", receiver.url, SECRET)
        alerts.rule(name, stream=stream, when="temperature > 30", tell=[hook])
        (tmp_path / "now").touch()
        alerts.send(stream, "oven", 31.0)
        wait_until(lambda: not ops.process.is_running(), "it dies there")
    kept = {one.key() or b"" for one in read(kafka_of_alerts, topics.ALERTS)}
    of_it = [key for key in kept if name.encode() in key and not key.startswith(b"place|")]
    assert of_it, "the rows that the next server goes on with"
    assert any(stream.encode() in key for key in kept), "how far it was judged stays"
    for key in of_it:
        alerts.put(topics.ALERTS, key.decode(), None)
    with running(kafka_of_alerts.bootstrap, tmp_path, lines) as ops:
        alerts = Alerts(ops, kafka_of_alerts)
        alerts.until_judged()
        alerts.send(stream, "stove", 31.0)
        wait_until(lambda: len(receiver.ids()) == told + 1, "what comes later is judged")
        assert receiver.calls[-1]["firing"] == ["stove"]
        assert alerts.states(name) == {"stove": "firing"}, "of the oven nobody knows"


def test_of_two_servers_one_judges_and_the_other_goes_on_when_it_is_killed(
    kafka_of_alerts: KafkaConfig,
    tmp_path_factory: pytest.TempPathFactory,
    receiver: Hook,
    unique: Callable[[str], str],
):
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    name = unique("r")
    leads = '"event":"alerts.leads"'
    with running(kafka_of_alerts.bootstrap, one, configuration(one)) as first:
        first.process.wait_for(leads)
        with running(kafka_of_alerts.bootstrap, two, configuration(two)) as second:
            alerts = Alerts(second, kafka_of_alerts)
            stream = alerts.stream()
            hook = alerts.destination("hook", receiver.url, SECRET)
            alerts.rule(name, stream=stream, when="temperature > 30", tell=[hook])
            alerts.send(stream, "oven", 31.0)
            wait_until(lambda: len(receiver.ids()) == 1, "it is told")
            assert leads not in second.process.output()
            first.process.kill()
            alerts.send(stream, "stove", 31.0)
            young, kitchen = unique("r"), alerts.stream()
            facts = {"stream": kitchen, "when": "temperature > 30", "tell": [hook], "group_s": 0}
            alerts.ask("PUT", f"/v1/alerts/{young}", facts)
            alerts.send(kitchen, "kettle", 31.0)
            second.process.wait_for(leads)
            wait_until(lambda: len(receiver.ids()) == 3, "the other judges on")
            told = {tuple(call["firing"]) for call in receiver.calls}
            assert told == {("oven",), ("stove",), ("kettle",)}
            both = {"oven": "firing", "stove": "firing"}
            wait_until(lambda: alerts.states(name) == both, "its table shows both")
            wait_until(lambda: alerts.states(young) == {"kettle": "firing"}, "and the young one's")


@pytest.mark.long
def test_a_server_that_froze_sends_nothing_when_it_wakes_up_as_another_judges(
    kafka_of_alerts: KafkaConfig,
    tmp_path_factory: pytest.TempPathFactory,
    receiver: Hook,
    unique: Callable[[str], str],
):
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    name = unique("r")
    leads = '"event":"alerts.leads"'
    with running(kafka_of_alerts.bootstrap, one, configuration(one)) as first:
        first.process.wait_for(leads)
        with running(kafka_of_alerts.bootstrap, two, configuration(two)) as second:
            alerts = Alerts(second, kafka_of_alerts)
            stream = alerts.stream()
            hook = alerts.destination("hook", receiver.url, SECRET)
            alerts.rule(name, stream=stream, when="temperature > 30", tell=[hook])
            first.process.freeze()
            second.process.wait_for(leads)
            alerts.send(stream, "oven", 31.0)
            wait_until(lambda: len(receiver.ids()) == 1, "the other tells it")
            first.process.thaw()
            first.process.wait_for('"event":"alerts.away"')
            alerts.send(stream, "oven", 27.0)
            wait_until(lambda: len(receiver.ids("resolved")) == 1, "its end is told")
            assert len(receiver.calls) == 2


@pytest.mark.long
def test_the_control_of_it_a_server_that_froze_tells_what_it_finds_where_no_other_judges(
    kafka_of_alerts: KafkaConfig, tmp_path: Path, receiver: Hook, unique: Callable[[str], str]
):
    with running(kafka_of_alerts.bootstrap, tmp_path, configuration(tmp_path)) as only:
        only.process.wait_for('"event":"alerts.leads"')
        alerts = Alerts(only, kafka_of_alerts)
        stream = alerts.stream()
        hook = alerts.destination("hook", receiver.url, SECRET)
        alerts.rule(unique("r"), stream=stream, when="temperature > 30", tell=[hook])
        only.process.freeze()
        alerts.send(stream, "oven", 31.0)
        assert receiver.calls == []
        only.process.thaw()
        wait_until(lambda: len(receiver.ids()) == 1, "it sends it itself when it wakes up")


@pytest.mark.long
def test_who_takes_or_snoozes_an_alert_is_heard_and_named(
    alerts: Alerts, unique: Callable[[str], str]
):
    stream = alerts.stream()
    rule = alerts.rule(unique("r"), stream=stream, when="temperature > 30")
    alerts.send(stream, "oven", 31.0)
    alerts.send(stream, "stove", 31.0)
    wait_until(lambda: len(alerts.states(rule)) == 2, "both fire")
    alerts.ask("POST", f"/v1/alerts/{rule}/ack", {"key": "oven", "why": "I look"}, 204)
    assert alerts.states(rule) == {"oven": "acknowledged", "stove": "firing"}
    alerts.ask("POST", f"/v1/alerts/{rule}/snooze", {"key": "stove", "seconds": 3600}, 204)
    found = {one["key"]: one for one in alerts.ask("GET", f"/v1/alerts/{rule}")["alerts"]}
    assert (found["oven"]["by"], found["oven"]["history"][-1]["why"]) == ("operator", "I look")
    assert found["stove"]["snoozed_until"] > found["stove"]["since"]
    missing = alerts.ask("POST", f"/v1/alerts/{rule}/ack", {"key": "none"}, 404)
    assert "has no alert of 'none'" in missing["detail"]


def test_a_silent_device_raises_an_alert_and_a_problem_of_the_system_too(
    alerts: Alerts, unique: Callable[[str], str]
):
    import time

    device, now = unique("meter"), time.time_ns() // 1_000_000
    row = DeviceSeen(device=device, last_seen=now - 60_000, skew_ms=0, records=3)
    alerts.put(topics.DEVICES, f"{device}|seen", row.to_json())
    rule = alerts.rule(unique("r"), silent_s=30, when="starts_with(device, 'meter')")
    wait_until(lambda: alerts.states(rule) == {device: "firing"}, "it is raised")
    again = DeviceSeen(device=device, last_seen=now + 60_000, skew_ms=0, records=3)
    alerts.put(topics.DEVICES, f"{device}|seen", again.to_json())
    wait_until(lambda: alerts.states(rule) == {device: "resolved"}, "it is over")


@pytest.mark.long
def test_what_was_read_while_no_server_ran_is_judged_afterwards(
    kafka_of_alerts: KafkaConfig, tmp_path: Path, unique: Callable[[str], str]
):
    lines, name = configuration(tmp_path), unique("r")
    with running(kafka_of_alerts.bootstrap, tmp_path, lines) as ops:
        alerts = Alerts(ops, kafka_of_alerts)
        stream = alerts.stream()
        alerts.rule(name, stream=stream, when="temperature > 30")
        alerts.send(stream, "oven", 20.0)
    alerts.send(stream, "oven", 31.0)
    alerts.send(stream, "oven", 20.0)
    with running(kafka_of_alerts.bootstrap, tmp_path, lines) as ops:
        alerts = Alerts(ops, kafka_of_alerts)
        wait_until(lambda: alerts.states(name) == {"oven": "resolved"}, "its life is there")


def test_a_trial_says_when_a_rule_would_have_fired(alerts: Alerts):
    stream = alerts.stream()
    for ago_s, value in ((1800, 20.0), (1700, 31.0), (1600, 33.0), (1500, 20.0), (600, 35.0)):
        alerts.send(stream, "oven", value, ago_s=ago_s)
    body = {"stream": stream, "when": "temperature > 30", "value": "temperature", "for_s": 60}
    trial = alerts.ask("POST", "/v1/alerts:check?hours=1", body)
    assert (trial["is_known"], trial["looks"], trial["keys"]) == (True, 5, 1)
    newest, older = trial["episodes"]
    assert newest["end"] is None
    assert older["end"] - older["begin"] == pytest.approx(140_000, abs=5_000)
    assert max(step["most"] or 0 for step in trial["steps"]) == 35
    wrong = alerts.ask("POST", "/v1/alerts:check", body | {"when": "temperature >"}, 422)
    assert "when or until" in wrong["detail"]


def test_secrets_are_not_shown_and_addresses_of_our_own_network_are_not_called(
    kafka_of_alerts: KafkaConfig, tmp_path: Path, receiver: Hook
):
    (tmp_path / "seal.key").write_text("cd" * 32 + "\n")
    lines = f'seal_key_file = "{tmp_path / "seal.key"}"\n'
    with running(kafka_of_alerts.bootstrap, tmp_path, lines) as ops:
        alerts = Alerts(ops, kafka_of_alerts)
        made = alerts.ask("PUT", "/v1/destinations/far", {"address": "https://hooks.example/T0K3N"})
        assert made["secret"].startswith("whsec_")
        assert made["where"] == "https://hooks.example"
        alerts.ask("PUT", "/v1/destinations/room", {"address": "ntfys://user:pa55word@ntfy.sh/x"})
        shown = ops.client.get("/v1/destinations").text
        assert "T0K3N" not in shown
        assert "pa55word" not in shown
        assert made["secret"] not in shown
        http = {"address": receiver.url}
        assert "expected https" in alerts.ask("PUT", "/v1/destinations/near", http, 422)["detail"]
        near = {"address": f"json://127.0.0.1:{receiver.port}/hook"}
        alerts.ask("PUT", "/v1/destinations/near", near)
        tried = alerts.ask("POST", "/v1/destinations/near/try")
        assert not tried["sent"]
        assert "not a public address" in tried["error"]
        assert receiver.calls == []


@pytest.mark.long
def test_a_webhook_is_sent_its_own_headers_which_nobody_is_shown(
    alerts: Alerts, receiver: Hook, unique: Callable[[str], str]
):
    name = unique("hook")
    body = {"address": receiver.url, "secret": SECRET, "headers": {"Authorization": "Bearer t0k"}}
    made = alerts.ops.client.put(f"/v1/destinations/{name}", json=body)
    again = alerts.ops.client.put(f"/v1/destinations/{name}", json={"address": receiver.url})
    shown = alerts.ops.client.get("/v1/destinations")
    assert (made.status_code, again.status_code, shown.status_code) == (200, 200, 200)
    assert "t0k" not in made.text + again.text + shown.text
    assert alerts.ask("POST", f"/v1/destinations/{name}/try")["sent"]
    assert [call["authorization"] for call in receiver.calls] == ["Bearer t0k"]
    wrong = alerts.ask("PUT", f"/v1/destinations/{name}", body | {"headers": {"Host": "t0k"}}, 422)
    assert "header 'Host'" in wrong["detail"]
    assert "t0k" not in str(wrong)


def test_a_test_reaches_a_destination_at_once(alerts: Alerts, mailbox: Mail):
    mail = alerts.destination("mail", mailbox.address)
    assert alerts.ask("POST", f"/v1/destinations/{mail}/try") == {"sent": True, "error": ""}
    assert "a test" in str(mailbox.letters[0]["Subject"])


@pytest.mark.long
def test_who_changed_an_older_version_is_told_by_whom_it_was_changed(
    alerts: Alerts, unique: Callable[[str], str]
):
    name = unique("r")
    body = {"problems": ["part"], "text": "one"}
    assert alerts.ask("PUT", f"/v1/alerts/{name}?version=0", body)["version"] == 1
    alerts.ask("PUT", f"/v1/alerts/{name}?version=1", body | {"text": "two"})
    conflict = alerts.ask("PUT", f"/v1/alerts/{name}?version=1", body | {"text": "three"}, 409)
    assert "version 2 now, changed by operator" in conflict["detail"]
    same = alerts.ask("PUT", f"/v1/alerts/{name}?version=1", body | {"text": "two"})
    assert same["version"] == 2


def test_in_quiet_hours_notes_wait_unless_the_rule_is_severe_enough(
    alerts: Alerts, receiver: Hook, unique: Callable[[str], str]
):
    stream = alerts.stream()
    hook = alerts.destination("hook", receiver.url, SECRET)
    begins = datetime.now(UTC) - timedelta(hours=1)
    quiet = {"name": "now", "begins": f"{begins:%H:%M}", "zone": "UTC"}
    quiet["ends"] = f"{begins + timedelta(hours=12):%H:%M}"
    facts = {"stream": stream, "when": "temperature > 30", "tell": [hook], "quiet": quiet}
    waits = alerts.rule(unique("r"), **facts)
    passes = alerts.rule(unique("r"), **facts, severity="critical")
    alerts.send(stream, "oven", 31.0)
    wait_until(lambda: receiver.calls != [], "the severe one is told")
    wait_until(lambda: alerts.states(waits) == {"oven": "firing"}, "the other fires as well")
    assert [call["rule"] for call in receiver.calls] == [passes]
    found = alerts.ask("GET", f"/v1/alerts/{waits}")
    assert (found["notes"], found["alerts"][0]["told"]) == ([], "")
    assert found["rule"]["quiet_until"] > found["alerts"][0]["since"]
    wrong = {**facts, "quiet": quiet | {"zone": "Europe/Nowhere"}}
    detail = alerts.ask("PUT", f"/v1/alerts/{waits}", {"group_s": 0, **wrong}, 422)["detail"]
    assert "unknown zone 'Europe/Nowhere'" in detail
    alerts.ask("PUT", f"/v1/alerts/{waits}", {"group_s": 0, **facts, "quiet": None})
    wait_until(lambda: len(receiver.calls) == 2, "what still fires is told once it is not quiet")
    assert receiver.calls[1]["rule"] == waits
    for rule in (waits, passes):
        alerts.ask("DELETE", f"/v1/alerts/{rule}", status=204)
