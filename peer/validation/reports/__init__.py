"""Results kept, compared and drawn."""
