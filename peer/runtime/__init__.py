"""Loaded units: batching, KV arrays, execution and the speed of this machine."""
