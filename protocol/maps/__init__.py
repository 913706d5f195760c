"""Maps: what devices publish in their own words, as readings. `docs/maps.md` is the language.

`compiling.compile_maps` reads a file, `applying.apply` turns one message into readings. Both decide
and do no I/O; the agent's sources, the bridge and `edgewake map` use the same two.
"""
