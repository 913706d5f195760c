"""The pipes between the agent and its child that makes sketches.

A message is its length and that many bytes of JSON.
"""

from __future__ import annotations

import struct
from typing import Final

LENGTH: Final = struct.Struct("<I")
"""The length of a message, before it."""
