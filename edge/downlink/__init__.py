"""The way down: what the cloud sends is kept when it comes, and done once.

`inbox` keeps, `ledger` decides, the others do.
"""
