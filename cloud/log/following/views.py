"""The views of one server: one for all who see the same in the same encoding."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar, cast

from edgewake.cloud.log.following.fan_out import FanOut
from edgewake.cloud.log.following.followed import Followed
from edgewake.cloud.log.following.subscriber import ViewEnded
from edgewake.cloud.log.following.view import Encoding, Shared, View
from edgewake.cloud.log.hub_bounds import Full
from edgewake.cloud.log.named import Named
from edgewake.cloud.log.subscription import Plan, Sight
from edgewake.cloud.log.wanted import wanted as subscribed
from edgewake.protocol.errors import Unavailable

C = TypeVar("C")
Key: TypeAlias = tuple[Sight, str]
"""What is seen, and the name of the encoding."""


class Views:
    """Makes a view for its first reader, and forgets it after its last one."""

    def __init__(
        self,
        shared: Shared,
        fan_out: FanOut,
        entries: Callable[[Plan], list[Followed]],
        *,
        most: int,
    ) -> None:
        """`entries`: the followed streams of a plan, or Unavailable; `most`: how many views."""
        self._shared, self._fan_out, self._entries, self._most = shared, fan_out, entries, most
        self._of: dict[Key, View[Any]] = {}
        self.own = 0
        """The views that not everybody shares: those with a filter or of several streams."""
        self._named_generation = 0

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, key: Key) -> bool:
        return key in self._of

    def of(self, opened: Plan, encoding: Encoding[C]) -> View[C]:
        """The view of an open plan. Raises Full, or Unavailable where a stream was recreated."""
        key = (opened.sight, encoding.name)
        view = self._of.get(key)
        if view is None or view.ended is not None or view.plan.sources != opened.sources:
            view = self._new(opened, encoding, key)
        return cast("View[C]", view)

    def _new(self, opened: Plan, encoding: Encoding[C], key: Key) -> View[C]:
        if len(self._of) >= self._most:
            raise Full(f"this server already serves {len(self._of)} different subscriptions")
        entries = self._entries(opened)

        def on_empty() -> None:
            if self._of.get(key) is view:
                self._forget(key)
            self._fan_out.remove(view)
            for entry in entries:
                entry.views.discard(view)
                entry.unindexed.discard(view)

        view = View(
            opened, [entry.tails for entry in entries], encoding, self._shared, on_empty=on_empty
        )
        if key in self._of:
            self._forget(key)
        self._of[key] = view
        self.own += not opened.sight.is_common
        for entry in entries:
            entry.views.add(view)
        self._index(view, entries)
        return view

    def _forget(self, key: Key) -> None:
        del self._of[key]
        self.own -= not key[0].is_common

    def follow_named(self, named: Named | None) -> None:
        """Index views whose named sets changed again, and end those whose publication changed.

        The readers of an ended view come back with their cursors.
        """
        if named is None or named.generation == self._named_generation:
            return
        self._named_generation = named.generation
        for view in list(self._of.values()):
            publication = subscribed(view.plan.subscription).publication
            if publication is not None and named.publication(publication.name) != publication:
                view.end(ViewEnded(f"publication {publication.name!r} was changed"))
            elif view.is_outdated() and view.ended is None:
                self._index_again(view)

    def _index_again(self, view: View[Any]) -> None:
        with contextlib.suppress(Unavailable):  # a stream was recreated: the view ends by itself
            entries = self._entries(view.plan)
            view.renew()
            self._fan_out.remove(view)
            self._index(view, entries)
            view.on_records()

    def _index(self, view: View[Any], entries: Sequence[Followed]) -> None:
        view.lookout = self._fan_out.add(view, entries)
        for entry in entries:
            entry.unindexed.discard(view)
            if view.lookout is None:
                entry.unindexed.add(view)
