"""What survives a restart: the log on disk, the journal of operations, keys, the founder's file."""
