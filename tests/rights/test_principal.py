"""What a principal may do."""

from __future__ import annotations

import pytest

from edgewake.cloud.rights.names import Names
from edgewake.cloud.rights.principal import (
    ALL,
    ANYBODY,
    OPERATOR_STREAMS,
    Action,
    Grant,
    Kind,
    Principal,
    Proof,
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
