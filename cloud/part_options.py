"""The options of the commands that start a part of the cloud."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

C = TypeVar("C", bound=Callable[..., Any])


def part_options(file: str) -> Callable[[C], C]:
    """Options `config_file` and `verbose` of a command; `file`: help of the first."""

    def with_options(command: C) -> C:
        command = click.option("--verbose", is_flag=True, help="Log details, too.")(command)
        return click.option(
            "--config",
            "config_file",
            type=click.Path(path_type=Path, dir_okay=False),
            required=True,
            help=file,
        )(command)

    return with_options
