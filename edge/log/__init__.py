"""The event log: what the device received, durable before it goes on, until every consumer has
passed it. `event_log` comes first.
"""
