"""Sparkplug B 3.0 as values: names, payloads, and what a host application makes of them."""
