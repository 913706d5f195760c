"""The worlds outside: fleets that move, files that are played back, faults, clients, and a ledger
that judges.

Nothing here is needed to run the system. `ledger` and `faults` import nothing of ours, so that what
they say is not our own opinion.
"""
