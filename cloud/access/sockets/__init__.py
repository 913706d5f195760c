"""WebSocket at /v1/ws: several subscriptions on one connection.

They use the core that event streams and pages have: one cursor, one filter, one gap.
"""
