"""Who computed what, and whether it was right: receipts, checks, canaries, witnesses."""
