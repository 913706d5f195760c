"""Which message may pass: it becomes a Kafka record, or is refused with a reason."""
