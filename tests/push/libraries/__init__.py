"""Calls of ours, verified by the libraries of Standard Webhooks in other languages."""
