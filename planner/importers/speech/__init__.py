"""Models that write what is said: how their folders read, and what is stored of them."""
