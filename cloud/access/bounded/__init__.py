"""Bounded reads: a page of events in one finite answer, for clients that hold no connection."""
