"""This peer as the origin: its sessions with their timers and routes, answers as a stream."""
