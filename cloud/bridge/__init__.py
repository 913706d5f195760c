"""The bridge: readings from MQTT and HTTP into Kafka, and the answers to their devices."""
