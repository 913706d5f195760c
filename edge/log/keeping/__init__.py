"""What the log keeps, frames and gives up: batches, frames in flight, quotas, retention."""
