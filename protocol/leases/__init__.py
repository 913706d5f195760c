"""Leases, deliveries and groups: what clients ask of the push proxy, and how it is stored."""
