"""What lets messages in and records out: back-pressure from Kafka and from the sequencer."""
