"""Leases of sleeping clients: their states, their rows on `ew.leases`, who owns which."""
