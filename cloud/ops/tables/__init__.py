"""The tables of the operations API in memory, filled from Kafka. No I/O."""
