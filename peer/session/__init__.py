"""Both sides of a session, the origin and the stage, as functions of what arrives. Pure."""
