"""What is locked, looked at: advisories, licences, and a bill of materials.

`make audit`; SECURITY.md says what follows from it.
"""
