"""Stages that several peers compute together, each a slice of every unit (docs/protocol.md, chapter Teams)."""
