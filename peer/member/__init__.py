"""The parts put together: founding, joining, lending, reconnecting, leaving; the frame router."""
