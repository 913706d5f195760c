"""Sources on a local MQTT broker: maps, topics with values, Sparkplug B."""
