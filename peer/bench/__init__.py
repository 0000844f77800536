"""Benchmarks: how fast this is beside other programs, and where the time goes."""
