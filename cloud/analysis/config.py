"""The configuration of the analysis."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Self

from pydantic import Field, field_validator, model_validator

from edgewake.cloud.analysis.spark.settings import StateStore, is_local, refused_settings
from edgewake.cloud.folder import Folder
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.traces.config import TracesConfig
from edgewake.protocol.config import Config
from edgewake.protocol.names import is_device, is_field, is_stream
from edgewake.protocol.sketches import bloom

SETS_MAX: Final = 16
"""Declared sets of devices: each costs a stream's summaries as much again, for the readings of its
devices."""
SET_DEVICES_MAX: Final = 1000
"""Devices of a set: they are compared with each reading's."""


VALUES_STREAMS_MAX: Final = 64
"""Streams with declared values: as many as are summed up."""


class SummaryValues(Config):
    """What the Bloom filters of a field are for (`summary_values`)."""

    capacity: int = Field(default=bloom.CAPACITY, ge=1, le=bloom.CAPACITY_MAX)
    """Different values of a day. Sixteen times as many still keep the error, within 256 KiB a
    filter; some 13 bits a value."""
    error: float = Field(default=bloom.ERROR, ge=bloom.ERROR_MIN, le=0.5)
    """How often `yes` may be wrong of a value that did not occur; what would be wrong more often is
    not said."""


class AnalysisConfig(Config):
    """What `edgewake analysis` needs to know."""

    data_dir: Folder = Path("analysis")
    """Holds Spark's own files, which each start removes, and without `shared_dir` also what must be
    kept: checkpoints (with the state) and the lake of summaries. Keep it as long as the streams:
    without it everything is computed again from the log. A path, or file:///…"""
    shared_dir: Folder | None = None
    """Where checkpoints and the lake of summaries are kept instead: a folder that this process and
    all workers of a cluster see under the same path. A path, or file:///…; required where `master`
    is a cluster."""
    lake_dir: Folder | None = None
    """Folder of the lake (`data_dir` of `edgewake lake`), where `query repair` and `backfill` find
    readings that Kafka keeps no more; none: they go back as far as Kafka does."""
    jars_dir: Path = Path("jars")
    """Spark's Kafka connector: all *.jar in it."""
    master: str = "local[2]"
    """Where Spark runs: in this process's own JVM with N threads (local[N]), or on a standalone
    cluster (spark://host:port)."""
    spark: dict[str, str] = Field(default_factory=dict)
    """Further settings of Spark, e.g. "spark.executor.memory" = "1g" and "spark.driver.host" =
    "10.0.0.5", the address by which the workers reach this process (its host name where it is not
    given). None of those that the analysis depends on."""
    driver_memory: str = Field(default="1g", pattern=r"^\d+[mg]$")
    """Heap of the driver's JVM."""
    trigger_ms: int = Field(default=1000, ge=0, le=60_000)
    """Time from one micro-batch of a stream to the next; 0: at once. A batch costs 0.1 to 0.25 CPU
    seconds however small it is."""
    calm_trigger_ms: int = Field(default=10_000, ge=0, le=60_000)
    """The interval for a stream with fewer than 1000 readings a second, 5000 at most where no
    window ends; the result of a window that ended is emitted at once all the same. 0: always
    `trigger_ms`, so that rows of open windows are as fresh with few readings as with many."""
    batch_records_max: int = Field(default=20_000, ge=1)
    """Records (frames) of a micro-batch at most when the analysis has fallen behind. It has fewer
    where they take longer than two seconds, as far as those before tell; one that does not fit into
    memory is tried with fewer."""
    state_partitions: int = Field(default=1, ge=1, le=64)
    """Partitions of the state, fixed by the first start on data_dir. With 1 a batch is one task
    without a shuffle, the cheapest for a small stream costs least with; more let one stream use as
    many cores."""
    state_memory: str = Field(default="128m", pattern=r"^\d+[mg]$")
    """Memory beside the heap that the open windows of all lanes have in a process (the driver, or
    each executor of a cluster): of a plain query's group some 160 bytes, of a sketch up to 60 KB.
    What is more lies in files of data_dir/spark (of an executor in its work folder) that the system
    keeps in memory as far as it can, so a state may be larger than memory, and is slower then."""
    state_store: StateStore = "memory"
    """What keeps the state of open windows: "memory", ours (see state_memory), or "rocksdb",
    Spark's RocksDB, which takes about twice the processor time for many queries and keeps most of
    its state on disk. With another value than before the state of each lane is built again from its
    stream."""
    maintenance_s: int = Field(default=60, ge=1, le=3600)
    """Seconds between two turns in which old files of the state are removed."""
    slow_s: float = Field(default=30.0, ge=0.1, le=86_400)
    """Seconds that a lane may be behind without catching up until a slow query is looked for in it.
    One that takes at least four times what the others take on average, and without which they take
    less than three quarters of the time, gets a lane of its own."""
    idle_s: float = Field(default=60.0, gt=0, le=86_400)
    """Seconds in which nothing came, after which a stream's event time goes on with the clock until
    its last windows are final."""
    event_time_wait_s: float = Field(default=10.0, ge=0, le=600)
    """Seconds that event time waits at most for readings that a stream has unread or that are still
    on their way, where they come faster than they are read or are long past: of recordings sent at
    full speed, and after outages. What comes later than that may be late."""
    summary_interval_s: int = Field(default=60, ge=0, le=3600)
    """Seconds from one update of the minute summaries to the next, six seconds after the full
    minute; 0 keeps none. One batch serves all streams. While more than 200,000 values (readings
    times fields) come in that time, it is a half, a third or another part of it, ten seconds at
    least: results of windows that end meanwhile would wait for a large one."""
    lake_days: int = Field(default=400, ge=0, le=36_500)
    """Days that the lake in data_dir keeps of each stream's minute summaries; then the oldest go,
    which bounds its files. 400: a year, and some of the one before to compare it with; 0 keeps
    all."""
    summary_devices: dict[str, tuple[str, ...]] = Field(default_factory=dict, max_length=SETS_MAX)
    """Sets of devices that are summed up beside the whole, by name, e.g. north = ["car-01",
    "car-02"]; one device may be a set. At most 16 of 1000 devices; each costs as much again for its
    devices' readings."""
    summary_values: dict[str, dict[str, SummaryValues]] = Field(
        default_factory=dict, max_length=VALUES_STREAMS_MAX
    )
    """Expected number of distinct values by stream and field, e.g. [summary_values.orders.customer]
    with capacity = 100000. It bounds how often `edgewake summary --contains` gives a wrong
    answer."""
    session_s: float = Field(default=10.0, ge=0.5, le=600)
    """Seconds without a sign of life after which another analysis takes over, where one stands by.
    At least what Kafka allows: 6 unless its `group.min.session.timeout.ms` is lowered, as it is in
    our compose file."""
    foreign_topics: tuple[str, ...] = ()
    """Topics of others in the same Kafka that queries may join (header `foreign`). Whoever may
    register queries can read what is in them."""
    metrics_port: int | None = Field(default=None, ge=1, le=65535)
    """Port of Prometheus metrics and of /healthz; none: neither."""
    metrics_host: str = "127.0.0.1"
    """Address of /metrics and /healthz; 0.0.0.0 where Prometheus asks from another container or
    machine. Nothing there is secret."""
    kafka: KafkaConfig = KafkaConfig()
    traces: TracesConfig = TracesConfig()
    """[traces]"""

    @property
    def kept_dir(self) -> Path:
        """Where what outlives a start is."""
        return self.data_dir if self.shared_dir is None else self.shared_dir

    @model_validator(mode="after")
    def _is_shared_with_workers(self) -> Self:
        if not is_local(self.master) and self.shared_dir is None:
            raise ValueError(
                f"master = {self.master!r}: expected shared_dir, or the state would lie on each "
                "worker's own disk and die with it"
            )
        return self

    @field_validator("spark")
    @classmethod
    def _are_settings(cls, settings: dict[str, str]) -> dict[str, str]:
        if refused := refused_settings(settings):
            raise ValueError(
                f"{', '.join(refused)}: expected names that begin with spark., and none that the "
                "analysis sets itself"
            )
        return settings

    @field_validator("summary_values")
    @classmethod
    def _are_fields(
        cls, values: dict[str, dict[str, SummaryValues]]
    ) -> dict[str, dict[str, SummaryValues]]:
        for stream, fields in values.items():
            wrong = [name for name in fields if not is_field(name)]
            if not is_stream(stream) or wrong:
                raise ValueError(
                    f"{stream[:80]}.{wrong[0][:80] if wrong else '…'}: expected the names of a "
                    "stream and of its fields"
                )
        return values

    @field_validator("summary_devices")
    @classmethod
    def _are_sets(cls, sets: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for name, members in sets.items():
            if not is_stream(name):
                raise ValueError(
                    f"{name[:80]!r} is not a name of a set: expected 1-64 of a-z 0-9 _, a letter "
                    "first"
                )
            if not 1 <= len(members) <= SET_DEVICES_MAX or not all(map(is_device, members)):
                raise ValueError(f"{name}: expected 1 to {SET_DEVICES_MAX} names of devices")
        return sets
