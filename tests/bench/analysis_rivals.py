"""Rivals of the analysis: installed into environments of their own, run on the same Kafka and
records, their results compared with ours.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from tests.bench import analysis_results
from tests.bench.analysis_traffic import Traffic, begin_of, fill, windows

INSTALL_S: Final = 300
RUN_S: Final = 300
HERE: Final = Path(__file__).parent
REQUIREMENTS: Final = {
    "quix": ("quixstreams==3.28.1", "orjson==3.13.0", "datasketches==5.2.0"),
    "bytewax": ("bytewax[kafka]==0.21.1", "orjson==3.13.0", "datasketches==5.2.0"),
    "faust": (
        "faust-streaming==0.15.3",
        "aiokafka==0.14.0",
        "uvloop==0.23.0",
        "cramjam==2.14.0",
        "orjson==3.13.0",
        "datasketches==5.2.0",
    ),
    "pathway": ("pathway==0.33.0", "orjson==3.13.0", "datasketches==5.2.0"),
}


@dataclass(frozen=True, slots=True)
class Rival:
    """A way to run one."""

    name: str
    """As the figure calls it."""
    library: str
    form: str
    """`readings` or `frames`: what goes through its window."""
    more: tuple[str, ...]
    is_exact: bool = False
    """Does it count nothing twice after a failure, as we do?"""


RIVALS: Final = (
    Rival(
        "Quix Streams, exactly once",
        "quix",
        "readings",
        ("{folder}", "exactly-once"),
        is_exact=True,
    ),
    Rival("Quix Streams, at least once", "quix", "readings", ("{folder}", "at-least-once")),
    Rival("Bytewax", "bytewax", "readings", ("1",)),
    Rival("Faust", "faust", "readings", ()),
    Rival("Pathway", "pathway", "readings", ("1",)),
    Rival(
        "Quix Streams, frames summed up by hand", "quix", "frames", ("{folder}", "at-least-once")
    ),
    Rival("Bytewax, frames summed up by hand", "bytewax", "frames", ("1",)),
    Rival("Faust, frames summed up by hand", "faust", "frames", ()),
    Rival("Pathway, frames summed up by hand", "pathway", "frames", ("1",)),
)


def install(folder: Path, only: str = "") -> dict[str, Path]:
    """Library → its Python, of those that could be had; `only`: of this library."""
    found: dict[str, Path] = {}
    for library, wanted in REQUIREMENTS.items():
        if only and library != only:
            continue
        try:
            venv.create(folder / library, with_pip=True)
            pip = [folder / library / "bin" / "pip", "install", "--quiet", *wanted]
            subprocess.run(pip, check=True, capture_output=True, timeout=INSTALL_S)
            found[library] = folder / library / "bin" / "python"
        except (subprocess.SubprocessError, OSError) as error:
            print(
                f"{library} could not be had: {getattr(error, 'stderr', b'') or error!r}",
                file=sys.stderr,
            )
    return found


def rate(
    config: KafkaConfig, python: Path, rival: Rival, stream: str, traffic: Traffic, folder: Path
) -> float:
    """Readings a second, from its first record to its last result; AssertionError where a result is
    wrong or missing.
    """
    begin_ms = begin_of(traffic)
    fill(config, stream, traffic, begin_ms)
    out = f"{stream}_out"
    topic_admin.ensure_topics(config, [topics.query_topic(out, 1)])
    names = (config.bootstrap, topics.stream_topic(stream), topics.query_topic(out, 1), rival.form)
    command = [
        str(python),
        str(HERE / f"rival_{rival.library}.py"),
        *names,
        *(one.format(folder=folder / stream) for one in rival.more),
    ]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=RUN_S, cwd=folder
    )
    assert done.returncode == 0, (rival.name, done.stderr[-2000:])
    seen = json.loads(done.stdout.splitlines()[-1])
    analysis_results.check(
        analysis_results.read(config, topics.query_topic(out, 1)),
        windows(traffic, begin_ms),
        rival.name,
    )
    return traffic.count / (seen["last"] - seen["first"])
