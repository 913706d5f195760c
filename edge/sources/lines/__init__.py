"""Sources that bring lines: files, programs, sockets, serial ports."""
