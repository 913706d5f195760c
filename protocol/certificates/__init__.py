"""Certificates of one installation: its own authority, and the book of what it gave and took
back.
"""
