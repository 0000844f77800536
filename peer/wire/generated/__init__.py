"""What the schema says of frames, as Python: written by `make generate`."""
