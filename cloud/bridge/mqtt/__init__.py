"""The bridge's MQTT session: what was taken, what was answered, and sessions of dead bridges."""
