"""Finds problems that need attention, each as a sentence. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from pydantic import BaseModel

from edgewake.cloud.ops.letters.dead_letters import DeadLetterView
from edgewake.cloud.ops.services.queries import QueryView
from edgewake.cloud.ops.tables.devices import DeviceView
from edgewake.cloud.ops.tables.part_table import STALE_MS, PartView
from edgewake.cloud.ops.tables.past import Happening
from edgewake.protocol.frames.stream import Stream
from edgewake.protocol.leases.lease_record import Lease
from edgewake.protocol.ops.alert import Alert, Note, NoteState, State
from edgewake.protocol.ops.device import WAITS_CHARS_MAX
from edgewake.protocol.ops.part_status import SILENT_MS
from edgewake.protocol.ops.problem import Kind
from edgewake.protocol.ops.query import QueryState

LOSS_AGE_MS: Final = 3_600_000
"""How long a loss, or an opened gap, is a problem, in ms."""
LETTER_AGE_MS: Final = 3_600_000
"""How long a dead letter is a problem, in ms; older ones are history."""
GOOD_QUERY_STATES: Final = frozenset({QueryState.RUNNING, QueryState.PAUSED, QueryState.STARTING})
KEYS_NAMED: Final = 3
LEASES_MAX: Final = 20
"""The most disabled leases named one by one; further ones are only counted."""


class KnownProblem(BaseModel):
    """A problem that needs attention."""

    kind: Kind
    name: str
    """The part, query or lease, the letters' reason, the devices' mark, or the kind of loss; pages
    link to it."""
    text: str
    """The problem in one sentence."""


def dead_by_reason(letters: Iterable[DeadLetterView], *, now_ms: int) -> Mapping[str, int]:
    """Counts letters of the last hour by reason."""
    return dict(
        Counter(letter.reason for letter in letters if now_ms - letter.received_at <= LETTER_AGE_MS)
    )


def problems_of(
    parts: Iterable[PartView],
    queries: Iterable[QueryView],
    leases: Iterable[Lease],
    dead: Mapping[str, int],
    *,
    is_ready: bool,
) -> Iterator[KnownProblem]:
    """Returns all problems, those that concern most people first."""
    if not is_ready:
        text = "the operations API is still reading its tables; what follows is incomplete"
        yield KnownProblem(kind="operations", name="operations", text=text)
    for part in parts:
        wrong = _trouble_of_part(part)
        if wrong:
            yield KnownProblem(kind="part", name=part.part, text=f"part {part.part}{wrong}")
    for query in queries:
        trouble = _trouble_of(query)
        if trouble is not None:
            yield KnownProblem(kind="query", name=query.name, text=f"query {query.name} {trouble}")
    for reason, count in sorted(dead.items()):
        what = "message was" if count == 1 else "messages were"
        text = f"{count} {what} refused within the last hour ({reason})"
        yield KnownProblem(kind="dead_letters", name=reason, text=text)
    yield from _disabled(leases)


def _trouble_of_part(part: PartView) -> str:
    """What is wrong with a part; empty where it is ready."""
    match part.state:
        case "ready":
            return ""
        case "unknown":
            return f": nothing was heard of it for more than {STALE_MS // 1000} s"
        case "silent":
            return f": it has said nothing for more than {SILENT_MS // 1000} s"
        case "hangs":
            return f" hangs: {part.detail}"
    return f" is {part.state}" + (f": {part.detail}" if part.detail else "")


def alert_problems(alerts: Iterable[Alert], notes: Iterable[Note]) -> Iterator[KnownProblem]:
    """Returns problems of alerting: firing rules and failed destinations. Rules ignore these."""
    firing: dict[str, list[str]] = {}
    for alert in alerts:
        if alert.state is State.FIRING:
            firing.setdefault(alert.rule, []).append(alert.key)
    for rule, keys in firing.items():
        named = ", ".join(keys[:KEYS_NAMED])
        more = f" and {len(keys) - KEYS_NAMED} more" if len(keys) > KEYS_NAMED else ""
        yield KnownProblem(kind="alert", name=rule, text=f"alert {rule}: {named}{more}")
    lost = Counter(note.destination for note in notes if note.state is NoteState.GIVEN_UP)
    for destination, count in lost.items():
        text = f"{destination} could not be told of alerts, {count} times within a day"
        yield KnownProblem(kind="alert", name="", text=text)


def device_problems(
    waiting: int,
    named: Sequence[str],
    contested: Mapping[str, Sequence[str]],
    held: int = 0,
    told: Sequence[DeviceView] = (),
) -> Iterator[KnownProblem]:
    """Returns problems of devices: readings that wait, and contested things.

    `waiting` devices have waiting readings, some of which are `named`. `contested` maps things to
    the gateways that send for them at once. `held` devices were asked to wait with a stream, some
    of which are `told`.
    """
    for thing, gateways in list(contested.items())[:KEYS_NAMED]:
        text = (
            f"{thing}: the gateways {' and '.join(gateways)} send for it at once: expected one of "
            "them; let the rules of [[gateway]] in bridge.toml name it for that one alone, or let "
            "it number its readings where both hear it (docs/gateways.md)"
        )
        yield KnownProblem(kind="device", name="", text=text)
    if len(contested) > KEYS_NAMED:
        text = f"{len(contested) - KEYS_NAMED} more things are sent for by several gateways at once"
        yield KnownProblem(kind="device", name="", text=text)
    if waiting:
        more = f" and {waiting - len(named)} more" if waiting > len(named) else ""
        text = f"readings wait for a minute and more on {', '.join(named)}{more}"
        yield KnownProblem(kind="device", name="waiting", text=text)
    for one in told:
        text = (
            f"{one.device} was asked to wait with its stream {(one.waits or '')[:WAITS_CHARS_MAX]}"
        )
        yield KnownProblem(kind="device", name="held", text=text)
    if held > len(told):
        text = f"{held - len(told)} more devices were asked to wait with a stream"
        yield KnownProblem(kind="device", name="held", text=text)


def unit_problems(streams: Iterable[Stream]) -> Iterator[KnownProblem]:
    """Returns problems of fields of which two units were said: one of them is wrong somewhere."""
    found = [
        (stream.name, name, info)
        for stream in streams
        for name, info in stream.fields.items()
        if info.other_unit
    ]
    for stream_name, name, info in found[:KEYS_NAMED]:
        text = (
            f"stream {stream_name}: the field {name} is in {info.unit}, and in {info.other_unit}: "
            "expected one unit of all devices; deciding it (`edgewake streams field`) ends this"
        )
        yield KnownProblem(kind="device", name="units", text=text)
    if len(found) > KEYS_NAMED:
        text = f"{len(found) - KEYS_NAMED} more fields have two units"
        yield KnownProblem(kind="device", name="units", text=text)


def loss_problems(happened: Iterable[Happening]) -> Iterator[KnownProblem]:
    """Returns problems of lost readings and opened gaps, from the losses of the last hour."""
    lost: Counter[str] = Counter()
    opened: Counter[str] = Counter()
    for one in happened:
        lost[one.name] += one.facts.get("lost", 0) + one.facts.get("missing", 0)
        opened[one.name] += one.facts.get("opened", 0)
    if readings := lost.total():
        what = "reading was" if readings == 1 else "readings were"
        text = f"{readings:,} {what} lost for good within the last hour, of {_most_of(lost)}"
        yield KnownProblem(kind="loss", name="lost", text=text)
    if gaps := opened.total():
        what = "gap" if gaps == 1 else "gaps"
        text = f"{gaps:,} {what} opened within the last hour, of {_most_of(opened)}"
        text += ": what is missing may still come"
        yield KnownProblem(kind="loss", name="opened", text=text)


def _most_of(counts: Counter[str]) -> str:
    """Names the devices with the highest counts, and the number of others."""
    having = +counts
    named = ", ".join(name for name, _ in having.most_common(KEYS_NAMED))
    more = len(having) - KEYS_NAMED
    return f"{named} and {more} more" if more > 0 else named


def _trouble_of(query: QueryView) -> str | None:
    if query.state not in GOOD_QUERY_STATES:
        return f"is {query.state}: {query.detail}"
    if query.state is QueryState.STARTING and query.detail:
        return f"is starting: {query.detail}"
    if query.stands and query.state is QueryState.RUNNING:
        return f"tells no window as final: {query.detail}"
    if query.isolated and query.state is QueryState.RUNNING:
        return f"is isolated: {query.detail}"
    return None


def _disabled(leases: Iterable[Lease]) -> Iterator[KnownProblem]:
    disabled = [lease for lease in leases if lease.disabled]
    for lease in disabled[:LEASES_MAX]:
        text = f"lease {lease.id} of {lease.endpoint_host} is disabled: {lease.disabled}"
        yield KnownProblem(kind="lease", name=lease.id, text=text)
    if len(disabled) > LEASES_MAX:
        text = f"{len(disabled) - LEASES_MAX} more leases are disabled"
        yield KnownProblem(kind="lease", name="", text=text)
