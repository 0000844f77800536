"""Decides who may meet whom: rooms, invites, keys and the server that introduces peers."""
