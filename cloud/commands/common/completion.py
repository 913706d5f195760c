"""Completes names in the shell from the operations API, with the options given so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import click

from edgewake.cloud.commands.common.api_client import Given, connect
from edgewake.protocol import completing
from edgewake.protocol.errors import EdgewakeError

Complete: TypeAlias = Callable[[click.Context, click.Parameter, str], list[str]]
_OPTIONS: Final = ("url", "key", "key_file", "as_json")


def _names(path: str, field: str, *, has_pages: bool = True) -> Complete:
    """The values of `field` in the list at `path`; `has_pages`: it takes a limit.

    Nothing where nobody answers: a completion has no place for errors.
    """
    asked = f"{path}?limit={completing.ASKED_MAX}" if has_pages else path

    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        given = _given(context)
        try:
            api = connect(given.url, given.key, given.key_file, as_json=True)
            found = completing.ask(f"{api.url.rstrip('/')}{asked}", api.key)
            return completing.beginning_with((item[field] for item in found["items"]), incomplete)
        except (EdgewakeError, OSError, ValueError, KeyError, TypeError):
            return []

    return complete


def _given(context: click.Context) -> Given:
    """What stands behind the command counts more than what stands before it."""
    parent = {} if context.parent is None else context.parent.params
    return Given(**_options(parent)).unless(Given(**_options(context.params)))


def _options(params: dict[str, Any]) -> dict[str, Any]:
    return {name: params.get(name) for name in _OPTIONS}


devices: Final = _names("/v1/devices", "device")
streams: Final = _names("/v1/streams", "name")
queries: Final = _names("/v1/queries", "name")
boards: Final = _names("/v1/boards", "name")
sets: Final = _names("/v1/sets", "name")
publications: Final = _names("/v1/publications", "name")
alerts: Final = _names("/v1/alerts", "name")
claims: Final = _names("/v1/claims", "id", has_pages=False)
