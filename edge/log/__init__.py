"""The event log: readings, durable before they go on, until every consumer has passed them.

`event_log` comes first.
"""
