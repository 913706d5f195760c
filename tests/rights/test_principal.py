"""What a principal may do."""

from __future__ import annotations

import pytest

from edgewake.cloud.rights.names import Names
from edgewake.cloud.rights.principal import (
    ALL,
    ANYBODY,
    NAME_CHARS_MAX,
    OPERATOR_STREAMS,
    Action,
    Grant,
    Kind,
    Principal,
    Proof,
    name_of,
)

READ = frozenset({Action.READ})


def someone(*grants: Grant) -> Principal:
    return Principal("someone", grants, Proof(Kind.KEY, b"1"))


def grant(*devices: str, fields: tuple[str, ...] | None = None, streams: str = "s") -> Grant:
    return Grant(
        READ,
        Names.of([streams]),
        Names.of(devices) if devices else None,
        None if fields is None else Names.of(fields),
    )


@pytest.mark.parametrize("stream", sorted(OPERATOR_STREAMS))
def test_nobody_is_granted_what_operators_see(stream: str) -> None:
    for principal in (ANYBODY, someone(ALL), someone(grant(streams=stream))):
        assert not principal.may(Action.READ, stream)
        scope = principal.scope(Action.READ, stream)
        assert scope is not None
        assert not scope.sees("car-7")
        assert not scope.sees(None)


def test_an_action_is_not_another() -> None:
    reader = someone(grant())
    assert reader.may(Action.READ, "s")
    assert not reader.may(Action.WAKE, "s")
    assert not reader.may(Action.READ, "t")


def test_two_subjects_never_have_one_name() -> None:
    assert name_of("https://id", "anna") == "https://id#anna"
    spiffe = "spiffe://example.org/" + "cell/" * 50
    long = [name_of("https://id", spiffe + end) for end in ("a", "b")]
    assert long[0] != long[1]
    # The name of one subject is no subject of another: it is longer than any that is whole.
    assert name_of("https://id", long[0].removeprefix("https://id#")) not in long
    assert all(len(name) > NAME_CHARS_MAX for name in long)
