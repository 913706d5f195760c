"""Access: streams and results over HTTP, to any number of readers, each with a cursor of its
own.
"""
