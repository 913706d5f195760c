"""What a delivery or a group is of, decided without I/O."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from edgewake.cloud.log.request import RequestError
from edgewake.cloud.log.wanted import Wanted
from edgewake.cloud.push.chosen import check_unpaced, check_whole, kept, rate_of
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.leases import group_record
from edgewake.protocol.leases.chosen import Chosen
from edgewake.protocol.leases.group_record import Group
from edgewake.protocol.ops.publication import Publication, PublicationLimits


def published(**limits: Any) -> Publication:
    return Publication(
        name="harbour",
        streams=("b", "a"),
        limits=PublicationLimits(**limits),
        version=1,
        changed_at=0,
        changed_by="a test",
    )


def hub_with(*publications: Publication) -> Any:
    """A hub that knows these, and nothing else."""
    known = {one.name: one for one in publications}
    named = SimpleNamespace(publication=known.get)
    return SimpleNamespace(catalogue=SimpleNamespace(named=named))


def group(**more: Any) -> Group:
    return Group(
        id="1", owner="o", name="g", streams=("s",), cursor="c", created_at=0, used_at=0, **more
    )


def test_what_is_stored_is_what_was_asked_for() -> None:
    stored = group(devices=("car-1", "car-2"), sample=0.5, per=("line",), where="n > 1")
    found = group_record.decode(group_record.encode(stored))
    assert found == stored
    assert kept(hub_with(), found) == Wanted(
        streams=("s",),
        where="n > 1",
        devices=frozenset({"car-1", "car-2"}),
        sample=0.5,
        per=("line",),
    )


def test_one_of_before_is_of_its_streams() -> None:
    told = orjson.loads(group_record.encode(group()))
    for name in ("publication", "devices", "sample", "per"):
        del told[name]
    assert group_record.decode(orjson.dumps(told)) == group()


def test_a_publication_is_looked_up_when_it_is_read() -> None:
    stored, now = group(publication="harbour"), published()
    found = kept(hub_with(now), stored)
    assert (found.publication, found.streams) == (now, ("a", "b"))
    with pytest.raises(Unavailable, match="harbour"):
        kept(hub_with(), stored)


@pytest.mark.parametrize(
    ("limits", "asked", "rate"),
    [
        ({}, None, None),
        ({}, 9.0, 9.0),
        ({"max_rate": 5}, None, 5.0),
        ({"max_rate": 5}, 9.0, 5.0),
        ({"max_rate": 5}, 2.0, 2.0),
    ],
)
def test_a_delivery_is_as_fast_as_both_allow(
    limits: dict[str, Any], asked: float | None, rate: float | None
) -> None:
    wanted = Wanted(streams=("a", "b"), publication=published(**limits))
    assert rate_of(wanted, asked) == rate
    assert rate_of(Wanted(streams=("a",)), asked) == asked


def test_what_its_operator_promises_is_kept_or_refused_in_words() -> None:
    check_whole(published(max_rate=5), "a delivery")
    check_unpaced(published())
    with pytest.raises(RequestError, match="every event"):
        check_whole(published(conflate_ms=1000), "a delivery")
    with pytest.raises(RequestError, match="max_rate"):
        check_unpaced(published(max_rate=5))


@pytest.mark.parametrize("words", [{}, {"streams": ["a"], "publication": "p"}, {"streams": []}])
def test_it_is_of_streams_or_of_a_publication(words: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="streams, or a publication"):
        Chosen(**words)
