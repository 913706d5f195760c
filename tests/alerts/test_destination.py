"""What is kept of a destination: sealed, and shown to nobody but the receiver."""

from __future__ import annotations

import itertools
from typing import Any

import click
import pytest
from click.testing import CliRunner

from edgewake.cloud.alerts import destination
from edgewake.cloud.alerts.destination import DestinationText
from edgewake.cloud.alerts.sender import Sender
from edgewake.cloud.calls import sealing, webhook
from edgewake.cloud.calls.endpoint import EndpointRefused
from edgewake.cloud.commands import alerts as command
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.ops.alert import Destination, Note, Severity
from tests.alerts.build import T0

URL = "https://hooks.example.org/a/T0K3N"
TOKEN = {"Authorization": "Bearer s3cr3t-t0k3n"}
_numbers = itertools.count()


def random_bytes(count: int) -> bytes:
    return next(_numbers).to_bytes(count)


SEALER = sealing.Sealer([b"k" * 32], random_bytes)


def keep(
    address: str, before: sealing.Endpoint | None = None, **more: Any
) -> tuple[Destination, str | None]:
    return destination.sealed(
        "oncall",
        DestinationText(address=address, **more),
        before,
        sealer=SEALER,
        allow_hosts=(),
        random_bytes=random_bytes,
        at=T0,
        by="ann",
    )


def kept(address: str, before: sealing.Endpoint | None = None, **more: Any) -> sealing.Endpoint:
    return destination.opened(keep(address, before, **more)[0], SEALER)


def test_headers_are_sealed_and_stand_in_no_row() -> None:
    row, _ = keep(URL, headers=TOKEN)
    shown = row.model_dump_json()
    assert "s3cr3t" not in shown
    assert "uthorization" not in shown
    assert dict(destination.opened(row, SEALER).headers) == {"authorization": "Bearer s3cr3t-t0k3n"}


def test_headers_and_secret_stay_while_the_address_does() -> None:
    before = kept(URL, headers=TOKEN)
    row, made = keep(URL, before)
    assert made is None
    assert destination.opened(row, SEALER) == before
    assert dict(destination.opened(row, SEALER).headers) == dict(before.headers)
    assert dict(kept(URL, before, headers={}).headers) == {}
    other, made = keep("https://hooks.example.com/b", before)
    after = destination.opened(other, SEALER)
    assert made == after.secret != before.secret, "another receiver gets neither"
    assert dict(after.headers) == {}


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"Host": "inside.s3cr3t"}, "Edgewake itself sends it"),
        ({"webhook-signature": "s3cr3t"}, "Edgewake itself sends it"),
        ({"Connection": "s3cr3t"}, "belongs to one connection"),
        ({"Authorization": "Bearer s3cr3t\r\nHost: x"}, "visible ASCII"),
        ({f"X-{n}": "s3cr3t" for n in range(9)}, "9, expected at most 8"),
        ({"X-A": "s3cr3t" * 400}, "expected at most 2048"),
    ],
)
def test_a_wrong_header_is_refused_and_not_shown(headers: dict[str, str], why: str) -> None:
    with pytest.raises(EndpointRefused, match=why) as refused:
        keep(URL, headers=headers)
    assert "s3cr3t" not in str(refused.value)


@pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")  # of a library of Apprise's
def test_only_a_webhook_has_headers() -> None:
    with pytest.raises(ValueError, match=r"^headers: only a webhook") as refused:
        keep("ntfys://ntfy.sh/room", headers=TOKEN)
    assert "s3cr3t" not in str(refused.value)
    assert kept("ntfys://ntfy.sh/room", headers={}).headers == {}


async def test_each_call_has_the_headers_beside_its_signature(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row, _ = keep(URL, headers=TOKEN)
    caller = webhook.Caller(FakeClock())
    calls: list[tuple[str, webhook.Signed]] = []

    async def call(url: str, signed: webhook.Signed) -> webhook.Outcome:
        calls.append((url, signed))
        return webhook.Failed("the endpoint answered 401")

    monkeypatch.setattr(caller, "call", call)
    note = Note(
        id="msg_1",
        rule="hot",
        destination="oncall",
        title="hot",
        body="…",
        severity=Severity.INFO,
        made_at=T0,
    )
    tried = await Sender(lambda: {"oncall": row}, SEALER, caller, (), FakeClock()).send(note)
    ((url, signed),) = calls
    assert (url, dict(signed.headers)) == (URL, {"authorization": "Bearer s3cr3t-t0k3n"})
    assert tried.error == "the endpoint answered 401"
    assert "s3cr3t" not in repr(tried)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["Bearer s3cr3t"], "header 1: expected NAME: VALUE"),
        (["A: s3cr3t", "A: s3cr3t"], "header 2: it is there twice"),
    ],
)
def test_the_command_shows_no_value_of_a_wrong_header(lines: list[str], why: str) -> None:
    with pytest.raises(click.ClickException, match=why) as refused:
        command._headers(lines)
    assert "s3cr3t" not in str(refused.value)


def test_the_command_reads_headers_from_lines() -> None:
    assert command._headers(["Authorization: Bearer a:b", " X-Team : ops "]) == {
        "Authorization": "Bearer a:b",
        "X-Team": "ops",
    }
    help_text = CliRunner().invoke(command.alert, ["destination", "set", "--help"]).output
    assert "--headers-file" in help_text
