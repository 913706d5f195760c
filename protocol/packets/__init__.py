"""MQTT 3.1.1 for code that is written for MQTT 5."""
