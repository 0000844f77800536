"""The commands of `shoal validate`, one module for each kind of run."""
