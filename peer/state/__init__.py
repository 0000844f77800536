"""The replicated state of a mesh: commands, who may propose them, and what they build. Pure."""
