"""Programs that send to the HTTP intake, well or badly: what each request is answered, and what it
leaves behind. Bytes in, no socket.
"""

from __future__ import annotations

import asyncio

import orjson
import pytest

from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.sources.web import http_intake
from edgewake.edge.sources.web.http_intake import (
    HEAD_BYTES_MAX,
    Connection,
    HttpIntake,
    HttpIntakeConfig,
)
from edgewake.edge.sources.web.http_request import KEY_CHARS_MAX, Refusal, Wanted, wanted
from tests.edge.sources.cage import Written
from tests.edge.sources.sink import MemorySink, context, intake_of

BODY_MAX = 2048


class Wire(Written):
    """What is written to the sender."""

    def answers(self) -> list[tuple[int, dict[str, object], dict[str, str]]]:
        """(status, body, headers) of each."""
        found, rest = [], self.said
        while rest:
            head, _, rest = rest.partition(b"\r\n\r\n")
            first, *lines = head.decode().split("\r\n")
            headers = {
                name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
            }
            length = int(headers.get("content-length", 0))
            found.append(
                (int(first.split()[1]), orjson.loads(rest[:length]) if length else {}, headers)
            )
            rest = rest[length:]
        return found


def source(position: str | None = None, **more: object) -> HttpIntake:
    config = HttpIntakeConfig(
        type="http_intake", stream="s", port=1, body_bytes_max=BODY_MAX, **more
    )  # type: ignore[arg-type]
    return HttpIntake(config, context(position))


async def sent(
    *pieces: bytes,
    sink: MemorySink | None = None,
    to: HttpIntake | None = None,
    token: str | None = None,
    policy: Policy = Policy.BLOCK,
) -> tuple[list[tuple[int, dict[str, object], dict[str, str]]], MemorySink]:
    """What a sender is answered who sends these pieces and hangs up."""
    sink, reader, wire = sink or MemorySink(), asyncio.StreamReader(), Wire()
    serving = asyncio.create_task(
        Connection(to or source(), reader, wire, token).serve(intake_of(sink, policy))
    )  # type: ignore[arg-type]
    for piece in pieces:
        reader.feed_data(piece)
        await asyncio.sleep(0)
    reader.feed_eof()
    await asyncio.wait({serving})
    if serving.exception() is not None:
        assert type(serving.exception()).__name__ == "RemoteProtocolError", serving.exception()
    return wire.answers(), sink


def request(
    body: bytes = b"",
    *headers: str,
    method: str = "POST",
    path: str = "/",
    kind: str = "application/json",
) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: x",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


@pytest.mark.parametrize(
    ("body", "status", "said", "values"),
    [
        (b'{"n": 1}', 200, {"taken": 1, "refused": 0}, [1]),
        (b'[{"n": 1}, {"n": 2}]', 200, {"taken": 2, "refused": 0}, [1, 2]),
        (b'{"n": 1}\n{"n": 2}\n', 200, {"taken": 2, "refused": 0}, [1, 2]),
        (b'{"n": 1}\nnonsense\n', 200, {"taken": 1, "refused": 1}, [1]),
        (b'[{"n": 1}, 5, {"n": {}}]', 200, {"taken": 1, "refused": 2}, [1]),
        (b'\xef\xbb\xbf{"n": 1}', 200, {"taken": 1, "refused": 0}, [1]),
        (b"[]", 200, {"taken": 0, "refused": 0}, []),
        (b"[5, 6]", 422, {"taken": 0, "refused": 2}, []),
        (b'{"a-b": 1}', 200, {"taken": 1, "refused": 0}, [None]),
        (b"null", 422, {"taken": 0, "refused": 1}, []),
        (b'{"n": 1', 400, None, []),
        (b"", 400, None, []),
        (b'{"n": 1}'.decode().encode("utf-16"), 400, None, []),
        (b'{"n": NaN, "m": 1}', 200, {"taken": 1, "refused": 0}, [None]),
    ],
    ids=[
        "an object", "a list", "lines", "a bad line", "bad ones in a list", "a byte order mark",
        "an empty list", "numbers", "a name that is made legal",
        "null", "half an object", "nothing", "UTF-16", "NaN",
    ],
)  # fmt: skip
async def test_what_a_body_holds_is_taken_and_said(
    body: bytes, status: int, said: dict[str, int] | None, values: list[int]
) -> None:
    ((code, answer, _),), sink = await sent(request(body))
    assert (code, sink.values()) == (status, values)
    refusals = answer.pop("refusals", [])
    assert answer == said if said is not None else "error" in answer
    assert len(refusals) == answer.get("refused", 0), "each is named"


async def test_requests_on_one_connection_are_answered_in_order_also_where_they_come_at_once() -> (
    None
):
    answers, sink = await sent(
        request(b'{"n": 1}') + request(b"[5]") + request(b'{"n": 2}'), request(b'{"n": 3}')
    )
    assert [status for status, _, _ in answers] == [200, 422, 200, 200]
    assert sink.values() == [1, 2, 3]


async def test_a_request_may_come_byte_by_byte_and_in_chunks() -> None:
    head = (
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: "
        b"chunked\r\n\r\n"
    )
    body = head + b'5\r\n{"n":\r\n3\r\n 1}\r\n0\r\n\r\n'
    answers, sink = await sent(*(body[at : at + 1] for at in range(len(body))))
    assert ([status for status, _, _ in answers], sink.values()) == ([200], [1])


async def test_who_asks_whether_to_go_on_is_told_so() -> None:
    reader, wire, sink = asyncio.StreamReader(), Wire(), MemorySink()
    serving = asyncio.create_task(Connection(source(), reader, wire, None).serve(intake_of(sink)))  # type: ignore[arg-type]
    whole = request(b'{"n": 1}', "Expect: 100-continue")
    reader.feed_data(whole[:-8])
    while not wire.said:
        await asyncio.sleep(0)
    assert wire.said.startswith(b"HTTP/1.1 100 ")
    reader.feed_data(whole[-8:])
    reader.feed_eof()
    await serving
    assert sink.values() == [1]


@pytest.mark.parametrize(("size", "status"), [(BODY_MAX, 200), (BODY_MAX + 1, 413)])
@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_a_body_of_just_the_bound_is_taken_and_one_byte_more_is_not(
    size: int, status: int, framing: str
) -> None:
    body = b'{"n": 1}'.ljust(size)
    whole = request(body)
    if framing == "chunks":
        head = (
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: "
            b"chunked\r\n\r\n"
        )
        whole = (
            head
            + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:1000], body[1000:]))
            + b"0\r\n\r\n"
        )
    ((code, _, headers),), sink = await sent(whole)
    assert (code, len(sink.readings)) == (status, status == 200)
    assert ("connection" in headers) == (status == 413), "nobody reads the rest of it"


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET",
        request(b'{"n": 1}')[:-1],
        b"\x16\x03\x01\x00\x01\r\n\r\n",
        b"POST / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/2\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\n A: b" + b"b" * 2 * HEAD_BYTES_MAX,
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Type: "
        b"application/json\r\n\r\nzz\r\n",
    ],
    ids=[
        "nothing",
        "three letters",
        "half a body",
        "TLS",
        "no host",
        "HTTP/2",
        "two lengths",
        "a negative length",
        "an endless head",
        "no chunk",
    ],
)
async def test_who_does_not_speak_http_leaves_nothing_behind(said: bytes) -> None:
    answers, sink = await sent(said)
    assert (sink.commits, sink.lost) == ([], {})
    assert all(status >= 400 for status, _, _ in answers)


@pytest.mark.parametrize(
    ("method", "path", "headers", "answer"),
    [
        ("POST", "/", {}, Wanted(False, None)),
        ("POST", "/?x=1", {}, Wanted(False, None)),
        ("POST", "/x", {}, 404),
        ("POST", "", {}, 404),
        ("POST", "*", {}, 404),
        ("POST", "//", {}, 404),
        ("GET", "/", {}, 405),
        ("post", "/", {}, 405),
        ("OPTIONS", "/", {"origin": "http://x"}, 405),
        ("POST", "/", {"origin": "http://127.0.0.1"}, 403),
        ("POST", "/", {"origin": "null"}, 403),
        ("POST", "/", {"content-type": "text/plain"}, 415),
        ("POST", "/", {"content-type": ""}, 415),
        ("POST", "/", {"content-type": "application/x-www-form-urlencoded"}, 415),
        ("POST", "/", {"content-type": " Application/JSON ; charset=utf-8"}, Wanted(False, None)),
        ("POST", "/", {"content-type": "application/x-ndjson"}, Wanted(False, None)),
        ("POST", "/", {"content-encoding": "gzip"}, 415),
        ("POST", "/", {"content-encoding": "identity"}, Wanted(False, None)),
        ("POST", "/", {"content-encoding": "Identity"}, Wanted(False, None)),
        ("POST", "/", {"idempotency-key": ""}, 400),
        ("POST", "/", {"idempotency-key": "k" * KEY_CHARS_MAX}, Wanted(False, "k" * KEY_CHARS_MAX)),
        ("POST", "/", {"idempotency-key": "k" * (KEY_CHARS_MAX + 1)}, 400),
        ("POST", "/", {"prefer": "wait=1,respond-async"}, Wanted(True, None)),
    ],
)
def test_what_a_head_asks_for_is_decided_by_the_head(
    method: str, path: str, headers: dict[str, str], answer: Wanted | int
) -> None:
    found = wanted(method, path, {"content-type": "application/json"} | headers, None)
    assert (found.status if isinstance(found, Refusal) else found) == answer


@pytest.mark.parametrize(
    ("shown", "lets_in"),
    [
        ("Bearer secret", True),
        ("bearer secret", True),
        ("BEARER secret", True),
        ("Bearer  secret", False),
        ("Bearer secret ", False),
        ("Bearer Secret", False),
        ("Bearer secre", False),
        ("Bearer secret2", False),
        ("secret", False),
        ("Basic secret", False),
        ("Bearer", False),
        ("", False),
        ("Bearer \xe9", False),
    ],
)
def test_a_token_is_compared_whole_and_its_scheme_in_any_letters(shown: str, lets_in: bool) -> None:
    """RFC 9110, section 11.1: the name of the scheme is case-insensitive; the token is not."""
    found = wanted(
        "POST", "/", {"content-type": "application/json", "authorization": shown}, "secret"
    )
    assert isinstance(found, Wanted) is lets_in
    assert lets_in or (isinstance(found, Refusal) and found.status == 401)


def test_without_a_header_nobody_is_let_in_where_a_token_is_asked_for() -> None:
    found = wanted("POST", "/", {"content-type": "application/json"}, "secret")
    assert isinstance(found, Refusal)
    assert found.status == 401


# keys


async def test_a_key_is_taken_once_and_the_repetition_waits_until_the_first_is_kept() -> None:
    sink, to = MemorySink(), source()
    sink.durable_now.clear()
    one = request(b'{"n": 1}', "Idempotency-Key: k")
    first = asyncio.create_task(sent(one, sink=sink, to=to))
    while not sink.commits:
        await asyncio.sleep(0)
    second = asyncio.create_task(sent(one, sink=sink, to=to))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not first.done()
    assert not second.done()
    sink.durable_now.set()
    assert [(await each)[0][0][:2] for each in (first, second)] == [
        (200, {"taken": 1, "refused": 0}),
        (200, {"repeated": True}),
    ]
    assert sink.values() == [1]


async def test_a_key_of_a_request_that_was_refused_may_be_used_again() -> None:
    sink, to = MemorySink(), source()
    key = "Idempotency-Key: k"
    for body, status in ((b"nonsense", 400), (b"[5]", 422), (b'{"n": 1}', 200)):
        ((code, _, _), *_), _ = await sent(request(body, key), sink=sink, to=to)
        assert code == status
    assert sink.values() == [1]


async def test_a_key_is_known_after_a_restart_by_what_was_committed_with_its_readings() -> None:
    sink = MemorySink()
    one = request(b'{"n": 1}', "Idempotency-Key: k")
    await sent(one, sink=sink)
    (kept,) = sink.positions
    ((_, answer, _),), _ = await sent(one, sink=sink, to=source(kept))
    assert (answer, sink.values()) == ({"repeated": True}, [1])


async def test_a_request_that_finds_no_room_is_answered_503_and_its_key_stays_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_intake, "TAKE_S", 0.01)
    sink, to = MemorySink(), source()
    one = request(b'{"n": 1}', "Idempotency-Key: k")
    sink.is_full = True
    ((code, _, headers),), _ = await sent(one, sink=sink, to=to)
    assert (code, headers["retry-after"]) == (503, "5")
    monkeypatch.undo()
    sink.free()
    ((code, _, _),), _ = await sent(one, sink=sink, to=to)
    assert (code, sink.values()) == (200, [1])


async def test_one_way_is_answered_before_anything_is_durable() -> None:
    sink = MemorySink()
    sink.durable_now.clear()
    ((code, answer, _),), _ = await sent(request(b'{"n": 1}', "Prefer: respond-async"), sink=sink)
    assert (code, answer, sink.values()) == (202, {"taken": 1, "refused": 0}, [1])


async def test_what_is_dropped_by_policy_is_answered_503_also_one_way() -> None:
    sink = MemorySink()
    sink.is_full = True
    for more in ([], ["Prefer: respond-async"], ["Idempotency-Key: k"]):
        ((code, _, _),), _ = await sent(
            request(b'{"n": 1}', *more), sink=sink, policy=Policy.DROP_NEWEST
        )
        assert code == 503
    assert sink.lost == {}, "the sender has them still"
