"""This peer's copy of the log: the replica, the client of the leader, the queue of proposals."""
