"""`edgewake alert` as somebody types it, on a running operations server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands.test_status import run
from tests.ops.alerts.conftest import Alerts
from tests.ops.alerts.receivers import Mail
from tests.services import wait_until

pytestmark = pytest.mark.services
FILE = """[too_hot]
text = "Somewhere it is too hot"
stream = "{stream}"
when = "temperature > 30"
value = "temperature"
tell = ["typed_mail"]
group_s = 0

[broken_parts]
problems = ["part"]
"""


@pytest.mark.long
def test_rules_of_a_file_are_applied_shown_acknowledged_and_deleted(
    alerts: Alerts, mailbox: Mail, tmp_path: Path
):
    stream = alerts.stream()
    rules = tmp_path / "rules.toml"
    rules.write_text(FILE.format(stream=stream))
    refused = run(alerts.ops, "alert", "apply", str(rules))
    assert refused.returncode == 1
    assert "there is no destination 'typed_mail'" in refused.stderr
    kept = run(
        alerts.ops, "alert", "destination", "set", "typed_mail", "--address", mailbox.address
    )
    assert kept.returncode == 0, kept.stderr
    assert run(alerts.ops, "alert", "try", "typed_mail").returncode == 0
    trial = run(alerts.ops, "alert", "apply", "--check", str(rules))
    assert "too_hot: good; in the last hour it would have fired 0 times" in trial.stdout
    applied = run(alerts.ops, "alert", "apply", str(rules))
    assert applied.returncode == 0, applied.stderr
    alerts.until_judged()
    alerts.send(stream, "oven", 31.5)
    wait_until(lambda: alerts.states("too_hot") == {"oven": "firing"}, "it fires")
    listed = json.loads(run(alerts.ops, "alert", "list", "--json").stdout)
    assert ("too_hot", "oven", "31.5") in [(o["rule"], o["key"], o["value"]) for o in listed]
    taken = run(alerts.ops, "alert", "ack", "too_hot", "--alert", "oven", "--why", "mine")
    assert taken.returncode == 0, taken.stderr
    shown = run(alerts.ops, "alert", "show", "too_hot", "--table").stdout
    assert "acknowledged" in shown
    assert "mine" in shown
    assert run(alerts.ops, "alert", "snooze", "too_hot", "2h").returncode == 0
    wrong = run(alerts.ops, "alert", "snooze", "too_hot", "soon")
    assert "expected e.g. 90s" in wrong.stderr
    assert run(alerts.ops, "alert", "delete", "too_hot").returncode == 0
    assert run(alerts.ops, "alert", "show", "too_hot").returncode == 1


def test_a_file_that_cannot_be_read_is_said(alerts: Alerts, tmp_path: Path):
    rules = tmp_path / "rules.toml"
    rules.write_text("[too_hot\n")
    assert "rules.toml: " in run(alerts.ops, "alert", "apply", str(rules)).stderr
    rules.write_text("text = 'x'\n")
    assert "expected a table [NAME]" in run(alerts.ops, "alert", "apply", str(rules)).stderr
