"""What clients that mean harm cost others: kinds of abuse, the clients, and the measurement beside quiet times."""
