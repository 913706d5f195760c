"""The kinds of queries behind one port: `job` is the port, `kinds` lists them, a file each."""
