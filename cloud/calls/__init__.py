"""Calls of others' endpoints: addresses that may be called, sealed secrets, signed webhooks."""
