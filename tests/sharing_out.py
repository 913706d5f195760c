"""How the files of tests are shared out to the processes of a run, and in which order.

The longest come first and those that start no service last: what is left at the end is short, so no process works alone for long.
Tests that share a Spark session stay in one process: a session of each process would load and compile all of Spark again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from xdist.scheduler import LoadFileScheduling

OWN_SPARK: Final = ("tests/analysis/test_truth.py", "tests/analysis/test_process.py")
"""Files of the analysis whose Spark is a process of its own."""
SECOND_SPARK: Final = tuple(f"tests/analysis/test_{name}.py" for name in ("checkpoint_files", "checkpoint_loss", "lane", "repairs"))
"""Half of the time that files with a shared session take: one process for all of them would be at work long after the others."""
SPARK: Final = "tests/analysis/"
TOGETHER: Final = ("tests/bridge/", "tests/sequencer/", "tests/page/", "tests/access/")
"""Folders whose files share servers that are started for the folder: by two processes they would be started twice."""
LONGEST: Final = (
    SPARK,
    SECOND_SPARK[0],
    "tests/bridge/",
    "tests/sequencer/",
    "tests/page/",
    "tests/story/test_story.py",
    "tests/analysis/test_truth.py",
    "tests/analysis/test_process.py",
    "tests/deploy/test_up.py",
    "tests/access/",
    "tests/push/test_schema.py",
    "tests/ops/test_schema.py",
)
"""Bundles that take half a minute and more. First those with a Kafka of their own: a process starts the session's
Kafka when a test first asks for it, and one that is idle costs processor time, too."""


def bundle(test: str) -> str:
    """The files that stay together with a test's: a test or a file as `tests/log/test_hub.py::test_name` → a name."""
    file = test.split("::", 1)[0]
    if file in SECOND_SPARK:
        return SECOND_SPARK[0]
    folder = next((folder for folder in (SPARK, *TOGETHER) if file.startswith(folder)), None)
    return file if folder is None or file in OWN_SPARK else folder


def rank(file: str, with_services: Collection[str]) -> int:
    """Files of a lower rank are given out earlier. `with_services`: the files with a test that starts one."""
    name = bundle(file)
    if name in LONGEST:
        return LONGEST.index(name)
    return len(LONGEST) + (file not in with_services)


class BundleScheduling(LoadFileScheduling):  # type: ignore[misc]
    """`--dist loadfile`, with bundles in place of files."""

    def _split_scope(self, nodeid: str) -> str:
        return bundle(nodeid)
