"""The Spark session that a configuration asks for."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.spark.class_archive import FOLDER as CLASSES
from edgewake.cloud.analysis.spark.session import start_session


def start_session_of(config: AnalysisConfig, jvm_options: Sequence[str] = ()) -> SparkSession:
    """The session of an analysis with this configuration; raises what start_session does."""
    return start_session(
        jars_dir=config.jars_dir,
        classes_dir=config.data_dir / CLASSES,
        work_dir=config.data_dir / "spark",
        master=config.master,
        driver_memory=config.driver_memory,
        state_partitions=config.state_partitions,
        state_memory=config.state_memory,
        state_store=config.state_store,
        maintenance_s=config.maintenance_s,
        more=config.spark,
        jvm_options=jvm_options,
    )
