"""Plans for a mesh that changes: after a loss, and while it serves."""
