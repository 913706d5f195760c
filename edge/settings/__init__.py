"""Settings that the cloud pushed: on trial until they are proven good."""
