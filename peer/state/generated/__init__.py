"""What the schema says of the commands of the log, as Python: written by `make generate`."""
