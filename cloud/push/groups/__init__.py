"""Shared consumers: a group of clients shares streams, and each event is given to one of them.

Served by the push proxies.
"""
