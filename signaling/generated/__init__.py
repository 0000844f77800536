"""What the schema says of the messages of signaling, as Python: written by `make generate`."""
