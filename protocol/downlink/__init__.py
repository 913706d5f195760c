"""What the cloud sends to a device beside its answers: commands, settings, feeds, replies."""
