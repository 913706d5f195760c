"""Bounded reads: a page of events in one answer that ends, for clients that hold no connection
open.
"""
