"""The planning service: requests and answers as bytes."""
