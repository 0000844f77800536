"""Raft among the peers, as a pure core: `Core.step(now_ms, event) -> effects`. Terms: Ongaro's thesis, 2014.

events and messages are its interface. core changes roles and puts together election, membership, reads, replication
and snapshot, which work on the state in server. The TypeScript core has the same modules; recorded traces hold the two
equal.
"""
