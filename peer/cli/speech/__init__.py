"""The command that writes what is said."""
