"""Frames and records of readings: their forms on the wire and in Kafka, answers, dead letters."""
