"""Questions that Kafka or another part answers while the request waits, each with a bound."""
