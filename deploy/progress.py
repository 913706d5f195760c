"""Progress for the user: a moving line each on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from edgewake.protocol.clock import Clock

_PLAIN_EVERY_S: Final = 5.0
"""Seconds between plain lines about one download."""


class Cancelled(Exception):
    """The user pressed Ctrl-C while something was under way."""


class Step:
    """One thing that is under way; `update` from any thread."""

    def __init__(self, steps: Steps, text: str, task: TaskID | None) -> None:
        self.text = text
        self._steps = steps
        self._task = task
        self._started_s = self._shown_s = steps.clock.monotonic_s()

    def update(self, done: int, total: int) -> None:
        """Report `done` bytes of `total`. Raises Cancelled after `Steps.cancel`."""
        if self._steps.is_cancelled:
            raise Cancelled
        if self._task is not None:
            self._steps.bars.update(
                self._task,
                completed=done,
                total=total,
                description=f"{self.text}, {total >> 20} MiB",
            )
        elif (now := self._steps.clock.monotonic_s()) - self._shown_s >= _PLAIN_EVERY_S:
            self._shown_s = now
            click.echo(f"  {self.text}: {done >> 20} of {total >> 20} MiB", err=True)

    def done(self, note: str = "") -> None:
        """Mark the step as finished."""
        took = self._steps.clock.monotonic_s() - self._started_s
        self.drop()
        self._steps.print_line(f"✓ {self.text}{note and f' {note}'} ({took:.1f} s)")

    def failed(self, why: str) -> None:
        """Mark the step as failed."""
        self.drop()
        self._steps.print_line(f"✗ {self.text}: {why}")

    def drop(self) -> None:
        """Take it away without a line."""
        if self._task is not None:
            self._steps.bars.remove_task(self._task)
            self._task = None


class Steps:
    """All steps of one start; a context manager."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.is_cancelled = False
        self._console = Console(stderr=True, highlight=False)
        self._is_terminal = self._console.is_terminal
        self.bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(20),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )

    def start(self, text: str) -> Step:
        """A new step."""
        if not self._is_terminal:
            return Step(self, text, None)
        return Step(self, text, self.bars.add_task(text, total=None))

    def print_line(self, text: str) -> None:
        """A line that stays."""
        if self._is_terminal:
            self._console.print(text, markup=False, soft_wrap=True)
        else:
            click.echo(text, err=True)
            sys.stderr.flush()

    def cancel(self) -> None:
        """Make steps that are under way end at their next update."""
        self.is_cancelled = True

    @contextmanager
    def step(self, text: str) -> Iterator[Step]:
        """A step around a block."""
        step = self.start(text)
        if not self._is_terminal:
            self.print_line(f"… {text}")
        try:
            yield step
        except BaseException:
            step.failed("did not work")
            raise
        step.done()

    def __enter__(self) -> Steps:
        if self._is_terminal:
            self.bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_terminal:
            self.bars.stop()
