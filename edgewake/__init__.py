"""Edgewake carries measurements from devices to people and programs that may be asleep.

In a wheel the five packages lie in this folder. In a checkout they lie beside it, at the top of the repository, so it is searched too.
"""

from pathlib import Path

_here = Path(__file__).parent
if not (_here / "protocol").is_dir():
    __path__.append(str(_here.parent))
