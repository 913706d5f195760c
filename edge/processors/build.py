"""Builds a chain from its configuration. Each kind of processor is named here once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from edgewake.edge.processors.chain import Chain
from edgewake.edge.processors.config import (
    AnyProcessor,
    ChainConfig,
    DownsampleConfig,
    StatefulConfig,
    UnitsConfig,
    WindowConfig,
)
from edgewake.edge.processors.operators.count_window import CountWindow
from edgewake.edge.processors.operators.deadband import Deadband
from edgewake.edge.processors.operators.derive import Derive
from edgewake.edge.processors.operators.explode import Explode
from edgewake.edge.processors.operators.filter import Filter
from edgewake.edge.processors.operators.keyed import Keyed
from edgewake.edge.processors.operators.lttb import Lttb
from edgewake.edge.processors.operators.pattern import Pattern
from edgewake.edge.processors.operators.rate import Rate
from edgewake.edge.processors.operators.rule import Rule
from edgewake.edge.processors.operators.seen import SeenStep
from edgewake.edge.processors.operators.select import Select
from edgewake.edge.processors.operators.smooth import Smooth
from edgewake.edge.processors.operators.time_window import TimeWindow
from edgewake.edge.processors.processor import Fold, Processor, Step
from edgewake.edge.processors.units import Units


def build(config: ChainConfig) -> Chain:
    """The chain of a configuration."""
    return Chain(config, [_processor(one) for one in config.processor])


def _processor(config: AnyProcessor) -> Processor:
    step = _STEPS[config.type](config)
    if isinstance(config, StatefulConfig) and config.by is not None:
        return Keyed(step, config.by, config.keys_max)
    return Fold(step)


def _units(config: UnitsConfig) -> Step:
    return Units({field: (change.unit, change.to) for field, change in config.fields.items()})


def _downsample(config: DownsampleConfig) -> Step:
    every_ms = round(config.every_s * 1000)
    return TimeWindow(
        config.fields,
        (config.aggregate,),
        size_ms=every_ms,
        every_ms=every_ms,
        grace_ms=round(config.grace_s * 1000),
        plain=True,
    )


def _window(config: WindowConfig) -> Step:
    if config.size_count is not None:
        return CountWindow(
            config.fields,
            config.aggregates,
            size=config.size_count,
            every=config.every_count or config.size_count,
        )
    size_ms, every_ms = (
        round((config.size_s or 0) * 1000),
        round((config.every_s or config.size_s or 0) * 1000),
    )
    return TimeWindow(
        config.fields,
        config.aggregates,
        size_ms=size_ms,
        every_ms=every_ms,
        grace_ms=round(config.grace_s * 1000),
    )


_STEPS: Final[Mapping[str, Callable[[Any], Step]]] = {
    "filter": Filter,
    "select": Select,
    "explode": Explode,
    "units": _units,
    "derive": Derive,
    "deadband": Deadband,
    "rate": Rate,
    "smooth": Smooth,
    "downsample": _downsample,
    "lttb": Lttb,
    "window": _window,
    "rule": Rule,
    "pattern": Pattern,
    "seen": SeenStep,
}
"""Type → what makes its step from its configuration."""
