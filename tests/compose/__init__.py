"""deploy/compose.yaml, run: all its services on a real engine, until the ledger has its verdict.

`make compose`.
"""
