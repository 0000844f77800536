"""Families of decoders, one module each, and the table of them."""
