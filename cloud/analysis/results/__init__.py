"""Rows become records of `ew.q.*`, in one Kafka transaction for each micro-batch."""
