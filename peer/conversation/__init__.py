"""What people say together: turns, adoption of answers, live hints, invites, transcripts."""
