"""The push proxy: it watches for clients that sleep and wakes them.

A client that goes to sleep leaves a lease: subscription, cursor, endpoint, wake policy. The proxy
reads on from that cursor, counts, and calls the endpoint. The wake-up is a hint; the truth stays in
the cursor, from which the client reads every event once.

`leases/` says what a lease is, who may have it and where it is stored; `counting/` follows streams
and counts what leases have not seen; `waking/` decides when a client is woken, and calls it.
`proxy.py` puts them together, `app.py` answers requests, `run.py` is the process.
"""
