"""Every event of a stream, sent to an endpoint: webhook delivery, in order, from an exact cursor.

Served by the push proxies, which own addresses and secrets.
"""
