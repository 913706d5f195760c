"""Real calls of a delivery and of a wake-up are good to the libraries of three languages, and what
was changed, or is old, is good to none.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
import uuid
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

import httpx
import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from edgewake.cloud.calls.webhook import make_secret, signed_headers
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.deploy.programs import jars, java
from tests.push.receiver import Received, receiving
from tests.push.service import Reader, Readings, Service, readings, serving
from tests.services import PATIENCE_S, Kafka

HERE: Final = Path(__file__).parent
TEXT: Final = '{"type":"edgewake.events","events":[{"name":"Čukarica 🚲","n":1e400,"x":"\\u2028"}]}'


@dataclass(frozen=True)
class Call:
    """A call, and the secret that it is held against."""

    secret: str
    id: str
    at: str
    signatures: str
    body: str

    @classmethod
    def of(cls, received: Received, secret: str) -> Call:
        headers = received.headers
        at, signatures = headers["webhook-timestamp"], headers["webhook-signature"]
        return cls(secret, received.id, at, signatures, received.body.decode())

    @property
    def line(self) -> str:
        coded = [b64encode(part.encode()).decode() for part in (self.signatures, self.body)]
        return " ".join((self.secret, self.id, self.at, *coded))


Verdicts: TypeAlias = list[bool]
Language: TypeAlias = Callable[[Sequence[Call]], Verdicts]


def python(calls: Sequence[Call]) -> Verdicts:
    def is_good(call: Call) -> bool:
        headers = {
            "webhook-id": call.id,
            "webhook-timestamp": call.at,
            "webhook-signature": call.signatures,
        }
        try:
            Webhook(call.secret).verify(call.body, headers)
        except (WebhookVerificationError, ValueError):  # ValueError: a signature without version
            return False
        return True

    return [is_good(call) for call in calls]


def javascript(calls: Sequence[Call]) -> Verdicts:
    return _asked(["node", str(HERE / "verify.mjs")], calls)


def java_(calls: Sequence[Call]) -> Verdicts:
    folder = jars.ensure("webhooks", lock=HERE / "jars.lock")
    program = [str(java.ensure()), "-cp", f"{folder}/*", str(HERE / "Verify.java")]
    return _asked(program, calls)


def _asked(program: Sequence[str], calls: Sequence[Call]) -> Verdicts:
    lines = "".join(f"{call.line}\n" for call in calls)
    done = subprocess.run(
        program, input=lines, capture_output=True, text=True, check=False, env={**os.environ}
    )
    said = done.stdout.splitlines()
    assert len(said) == len(calls), done.stderr[-2000:]
    assert all(line == "good" or line.startswith("refused ") for line in said)
    return [line == "good" for line in said]


LANGUAGES: Final[dict[str, Language]] = {
    "Python": python,
    "JavaScript": javascript,
    "Java": java_,
}
each_language = pytest.mark.parametrize("language", LANGUAGES)


def signed(secret: str, *, age_s: float = 0, body: str = TEXT) -> Call:
    """A call as the proxy signs it; two secrets are joined by a blank."""
    at_ms = int((time.time() - age_s) * 1000)
    headers = signed_headers(secret, "msg_1_1", body, at_ms=at_ms)
    return Call.of(Received(headers, body.encode()), secret.split()[0])


@each_language
def test_what_was_changed_or_is_old_is_refused(language: str) -> None:
    old, new, other = (make_secret(lambda n, s=seed: bytes([s]) * n) for seed in (1, 2, 3))
    good = signed(old)
    both = signed(f"{old} {new}")
    cases = {
        "as it was": (good, True),
        "while the secret is changed, the old one": (both, True),
        "and the new one": (replace(both, secret=new), True),
        "and one that never was": (replace(both, secret=other), False),
        "the new one before the change": (replace(good, secret=new), False),
        "four minutes old": (signed(old, age_s=240), True),
        "six minutes old": (signed(old, age_s=360), False),
        "six minutes ahead": (signed(old, age_s=-360), False),
        "an old one with a time of now": (
            replace(signed(old, age_s=360), at=good.at),
            False,
        ),
        "another body": (replace(good, body=good.body.replace("1e400", "2e400")), False),
        "another id": (replace(good, id="msg_1_2"), False),
        "no version": (replace(good, signatures=good.signatures.removeprefix("v1,")), False),
        "another version": (replace(good, signatures="v2," + good.signatures[3:]), False),
    }
    found = LANGUAGES[language]([call for call, _ in cases.values()])
    assert dict(zip(cases, found, strict=True)) == {
        name: expected for name, (_, expected) in cases.items()
    }


@pytest.mark.long
@pytest.mark.services
async def test_real_calls_are_good_in_every_language(
    kafka: Kafka, kafka_config: KafkaConfig, tmp_path: Path
) -> None:
    """A delivery's batch, one while its secret is changed, and a wake-up."""
    stream = readings(kafka_config, f"lib_{uuid.uuid4().hex[:12]}")
    stream.add(3)
    with (
        serving("access", kafka.bootstrap, tmp_path) as access,
        serving("push", kafka.bootstrap, tmp_path, allow_hosts=["127.0.0.1"]) as push,
    ):
        calls = [*await delivered(push, stream), await woken(access, push, stream)]
    for name, language in LANGUAGES.items():
        assert language(calls) == [True] * len(calls), name
        strangers = [replace(call, secret=make_secret(lambda n: b"x" * n)) for call in calls]
        assert language(strangers) == [False] * len(calls), f"{name}: the control"


async def asked(push: Service, method: str, path: str, body: object) -> httpx.Response:
    """A proxy's answer, once it takes the request: it hears of a new stream soon."""
    async with asyncio.timeout(PATIENCE_S), httpx.AsyncClient(timeout=PATIENCE_S) as http:
        while True:
            answer = await http.request(method, push.url + path, json=body)
            if answer.is_success:
                return answer
            is_early = answer.status_code == 503 or "unknown_stream" in answer.text
            assert is_early, answer.text
            await asyncio.sleep(0.1)


async def delivered(push: Service, stream: Readings) -> list[Call]:
    async with receiving() as receiver:
        path = f"/v1/deliveries/{stream.stream}"
        body = {"streams": [stream.stream], "url": receiver.url, "from": "earliest"}
        old = (await asked(push, "PUT", path, body)).json()["secret"]
        first = (await receiver.got(1))[0]
        new = (await asked(push, "POST", f"{path}/secret", {"keep_old_s": 3600})).json()["secret"]
        count = len(receiver.calls)
        stream.add(1)
        second = (await receiver.got(count + 1))[count]
        async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
            (await http.delete(push.url + path)).raise_for_status()
    assert second.headers["webhook-signature"].count("v1,") == 2
    return [Call.of(first, old), Call.of(second, old), Call.of(second, new)]


async def woken(access: Service, push: Service, stream: Readings) -> Call:
    reader = Reader(access.url, stream.stream)
    await reader.stand()
    secret = make_secret(lambda n: b"wake" * (n // 4))
    async with receiving() as receiver:
        body = {
            "subscription": {"streams": [stream.stream]},
            "cursor": reader.cursor,
            "endpoint": {"url": receiver.url, "secret": secret},
        }
        await asked(push, "POST", "/v1/leases", body)
        stream.add(1)
        call = (await receiver.got(1))[0]
    assert b'"edgewake.wake"' in call.body
    return Call.of(call, secret)
