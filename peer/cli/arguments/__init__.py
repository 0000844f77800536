"""The arguments of each command, read without importing what the command needs."""
