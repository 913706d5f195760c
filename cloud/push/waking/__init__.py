"""Wakes clients: when, by which call, and what the endpoint's answer means."""
