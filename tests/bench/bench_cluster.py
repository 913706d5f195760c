"""What a million readings cost with more partitions of the state, and on a Spark cluster with more
executors.

`python -m tests.bench.bench_cluster [--runs 3] [--json FILE]`. The traffic of "analysis" with 50
devices, 3.6 million readings, and a query that counts, averages and takes the maximum of each
device and minute: in one process of two threads with 1, 2 and 4 partitions, then on a standalone
cluster of 1 and of 2 workers, one core and 1 GiB each, with 2 partitions, whose state lies in a
folder that all of them see. Before them another stream of the same size is computed that is not
measured. Every result is read back from Kafka and compared with sums that were made without our
code. Processor time is of the driver's JVM, of Python and of the executors; Kafka is not in it.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Final

from edgewake.cloud.analysis.config import AnalysisConfig
from tests.bench.analysis_lane import lane_process
from tests.bench.analysis_traffic import FEW_KEYS
from tests.bench.bench_analysis import PLAIN, World, configuration, cpu_s
from tests.bench.figures import Found, run
from tests.services import run_kafka
from tests.spark_cluster import run_cluster

PARTITIONS: Final = (1, 2, 4)
WORKERS: Final = (1, 2)
LIMITS: Final = """
Kafka, the driver and all workers share the two processors of this machine: more executors compute
no more here, and the figures show what a cluster costs, not what it gains. On machines of their own
each executor adds its cores, up to as many as `state_partitions`; results still pass through the
driver ("100,000 keys: results through the driver", under "analysis").
"""


def measure(folder: Path, runs: int) -> Found:
    """Start what is needed, run, and stop it again."""
    found: Found = defaultdict(list)
    with run_kafka(folder / "kafka") as node:
        config = configuration(folder / "analysis", node)
        for partitions in PARTITIONS:
            own = {"data_dir": folder / f"local-{partitions}", "state_partitions": partitions}
            _scale(
                config.model_copy(update=own),
                f"one process, {partitions} partition{'s' if partitions > 1 else ''}",
                runs,
                found,
            )
        for workers in WORKERS:
            with run_cluster(
                folder / f"cluster-{workers}", workers=workers, memory_mib=1024
            ) as cluster:
                own = {
                    "data_dir": folder / f"driver-{workers}",
                    "shared_dir": folder / f"shared-{workers}",
                    "master": cluster.master,
                    "spark": {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "1g"},
                }
                name = f"{workers} executor{'s' if workers > 1 else ''} of one core, 2 partitions"
                _scale(config.model_copy(update=own), name, runs, found)
    return found


def _scale(config: AnalysisConfig, name: str, runs: int, found: Found) -> None:
    world = World(config)
    with lane_process(config) as lane:
        world.compute(lane, FEW_KEYS, PLAIN)
        for _ in range(runs):
            one = world.compute(lane, FEW_KEYS, PLAIN, check=True)
            found[name, "readings/s", None].append(one.readings / one.seconds)
            found[f"{name}: processor time of a million readings", "s", None].append(
                cpu_s(one) * 1e6 / one.readings
            )


if __name__ == "__main__":
    run(measure, __doc__)
