"""The worlds outside: fleets that move, recordings that are replayed, faults, clients, a ledger.

Nothing here is needed to run the system. `ledger` and `faults` import nothing of ours, so that what
they say is not our own opinion.
"""
