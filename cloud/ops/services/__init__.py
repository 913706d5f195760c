"""What the routes do: changes that are checked, written to Kafka and waited for."""
