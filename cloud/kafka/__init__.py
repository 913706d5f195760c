"""How every part of the cloud speaks to Kafka: `config` (the keys), `clients` (producers,
consumers, admin), `topic_admin` (makes topics), `metadata` (what Kafka knows about a topic),
`offsets`, `table_reader` (a compacted topic as a dict) and `headers`.
"""
