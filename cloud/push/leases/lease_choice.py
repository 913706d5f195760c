"""What a lease counts: streams, or those of a publication as it was when the lease was asked for.

A lease is counted by one condition, which an index finds, so a publication's own condition stands
in it, beside that of the right. Where the publication is changed the lease ends as by a right that
shows less (`edgewake.cloud.push.waking.lease_manager`), and its client asks for another one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgewake.cloud.log.filters.filter_syntax import parse_where
from edgewake.cloud.push.leases import lease_rights
from edgewake.cloud.rights.principal import Principal
from edgewake.protocol.errors import FilterError
from edgewake.protocol.leases.lease import Subscription


@dataclass(frozen=True, slots=True)
class LeaseChoice:
    """A checked subscription with what is stored beside it."""

    wanted: Subscription
    """With the streams of its publication."""
    condition: str | None
    """What must hold beside the client's own filter."""
    right: str
    checked_as: Principal
    """Who must have a right to the streams, and the sets of the condition: through a publication
    nobody."""
    devices: tuple[str, ...] | None = None
    """These alone; None: all. The condition says so, too, and of the next two."""
    sample: float | None = None
    per: tuple[str, ...] = ()

    @property
    def counted(self) -> Subscription:
        """With the condition in its filter."""
        where = lease_rights.counted(self.wanted.where, self.condition)
        return self.wanted.model_copy(update={"where": where})


def condition_of(
    of_right: str | None,
    devices: Sequence[str] | None,
    sample: float | None,
    things: Mapping[str, Sequence[str]],
) -> str | None:
    """What must hold beside the client's own filter: its right, devices, and share of all things.

    `things`: the fields that tell what a thing is, of each stream. Raises FilterError where that is
    more than one condition can have.
    """
    parts = [of_right]
    if devices is not None:
        parts.append(lease_rights.of_devices(devices))
    if sample is not None:
        parts.append(_in_sample(sample, things))
    texts = [text for text in parts if text is not None]
    if len(texts) < 2:
        found = "".join(texts) or None
    else:
        found = " AND ".join(f"({text})" for text in texts)
    if found is None or found == of_right:
        return of_right
    try:
        parse_where(found)
    except FilterError as error:
        raise FilterError(
            f"devices and sample, with what your right names, are more than a lease can be counted "
            f"by ({error}); expected fewer, or a named set in where"
        ) from None
    return sys.intern(found)  # many leases of one client have the same


def _in_sample(share: float, things: Mapping[str, Sequence[str]]) -> str:
    tests = {name: f"in_sample({', '.join(fields)}, {share!r})" for name, fields in things.items()}
    if len(set(tests.values())) == 1:
        return next(iter(tests.values()))
    parts = [f"({lease_rights.is_of(name)} AND {test})" for name, test in tests.items()]
    return " OR ".join(parts)
