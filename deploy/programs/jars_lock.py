"""Writes `jars.lock`: resolves each set of jars with jgo and notes coordinate, size and SHA-256.

Run after changing a version below.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Final

from edgewake.deploy.programs.jars import LOCK
from edgewake.deploy.programs.kafka_node import VERSION

SETS: Final = {
    # The second jar lets Kafka's log lines out: its own POM leaves the choice of a logging back end
    # to the user. The ! keeps its parent POM from choosing the versions of everything else.
    "kafka": (
        f"org.apache.kafka:kafka_2.13:{VERSION}+org.apache.logging.log4j:log4j-slf4j-impl:2.25.4!",
        None,
    ),
    # The token provider is resolvable at 4.0.0 only, the same classes; what Spark's wheel already
    # holds is left out. ecj compiles our own Java classes when the analysis starts
    # (cloud/analysis/spark/java_classes.py).
    "spark": (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0+org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0+org.eclipse.jdt:ecj:3.42.0",
        frozenset(
            {
                "spark-sql-kafka-0-10_2.13",
                "spark-token-provider-kafka-0-10_2.13",
                "kafka-clients",
                "scala-parallel-collections_2.13",
                "commons-pool2",
                "ecj",
            }
        ),
    ),
}


def lines(name: str, endpoint: str, keep: frozenset[str] | None) -> list[str]:
    """The lock's lines of one set."""
    from jgo.maven import MavenContext

    context = MavenContext()
    wanted = [context.create_dependency(coordinate) for coordinate in endpoint.split("+")]
    inputs, transitive = context.resolver.resolve(wanted)
    artifacts = {
        dependency.artifact.artifactId: dependency.artifact for dependency in (*transitive, *inputs)
    }
    found = []
    for artifact_id, artifact in sorted(artifacts.items()):
        if keep is None or artifact_id in keep:
            data = Path(artifact.resolve()).read_bytes()
            coordinate = f"{artifact.groupId}:{artifact_id}:{artifact.version}"
            found.append(f"{name} {coordinate} {len(data)} {sha256(data).hexdigest()}")
    return found


def main() -> None:
    """Write the lock."""
    text = [
        "# Made by `python -m edgewake.deploy.programs.jars_lock`; do not edit. Set, "
        "group:artifact:version, bytes, SHA-256."
    ]
    for name, (endpoint, keep) in SETS.items():
        text += lines(name, endpoint, keep)
    LOCK.write_text("\n".join(text) + "\n", "utf-8")


if __name__ == "__main__":
    main()
