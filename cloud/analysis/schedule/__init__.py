"""When a lane's next micro-batch begins, how large it may be, and which query makes it slow."""
