"""Payloads of maps that are neither JSON nor text."""
