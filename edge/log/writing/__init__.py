"""The one thread that writes: when it commits, when it frames, and a disk that fails."""
