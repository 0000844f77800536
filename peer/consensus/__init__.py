"""Raft among the peers, as a pure core: `Core.step(now_ms, event) -> effects`. Terms: Ongaro's thesis, 2014.

types and messages are its interface; core puts together election, replication, membership, snapshot and reads, which
work on one state. The TypeScript core has the same modules; recorded traces hold the two equal.
"""
