"""Kafka, as every part of the cloud uses it.

`config` (the keys), `clients` (producers, consumers, admin), `topic_admin` (makes topics),
`metadata` (what Kafka knows about a topic), `offsets`, `table_reader` (a compacted topic as a dict)
and `headers`.
"""
