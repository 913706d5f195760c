"""Named sets and publications: what operators keep for readers, over HTTP."""
