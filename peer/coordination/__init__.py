"""What the leader does: admission, planning anew, the choice of voters, suspicion."""
