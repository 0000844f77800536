/*
 * Faults that the tests can switch on in the core, one line each, to show that they would be noticed (twin of
 * peer/consensus/bugs.py). Pure.
 *
 * Each was found in some implementation of Raft. `Boot.bug` has one of these names, or "" as everywhere outside the tests.
 */

export const BUGS: Readonly<Record<string, string>> = {
  '1-commits-older-term': 'a leader counts copies of an entry of an older term as commit',
  '2-vote-not-stored': 'a vote for another is given but not stored, and can be given again after a restart',
  '3-term-lost-at-restart':
    'term and vote are forgotten at a restart; only the term of the last entry remains',
  '4-term-before-vote':
    'the term of a vote is stored first, its candidate after it; the answer waits for the first',
  '5-step-down-clears-vote': 'stepping down within a term clears the vote of that term',
  '6-votes-twice': 'a server votes for every candidate of a term whose log will do',
  '7-no-vote-for-itself': 'a candidate does not record its vote for itself and gives it to another',
  '8-uninitialised-votes': 'a server without any configuration yet does not store its votes',
  '10-step-down-truncates': 'a leader that becomes a follower drops the entries that it did not commit',
  '11-commit-past-verified': "a follower takes over the leader's commit index beyond what was compared",
  '15-compaction-cuts-suffix': 'storing a snapshot also cuts the entries behind it on disk',
  '17-ack-before-durable': 'entries are acknowledged, and counted by their leader, before they are durable',
  '18-applies-tail-again': 'after a restart, entries that the snapshot holds already are applied once more',
  '19-append-aba': 'what was being written when it was overwritten counts as durable for what replaced it',
  '20-snapshot-drops-suffix': 'a snapshot behind the end of an agreeing log drops the entries after it',
  '21-conflict-at-snapshot-kept': "entries after a conflicting entry at the snapshot's index are kept",
  '22-older-snapshot-installed': 'a snapshot older than the commit index is installed',
  '23-resent-append-misread':
    'an append that begins before the commit index counts as taken, but nothing of it is',
  '24-stale-log-at-boot': 'a log that a crash left beside a newer, conflicting snapshot is used at boot',
  '25-compacts-backwards': 'a local snapshot replaces a newer one that was installed meanwhile',
  '26-snapshot-stalls': 'a lost piece of a snapshot is never sent again',
  '27-snapshot-of-older-leader': 'a leader does not send a snapshot from before its own term',
  '28-no-barrier': "members change before an entry of the leader's own term is committed",
  '29-inherited-config-ignored': 'a new leader forgets a configuration that the one before did not commit',
  '30-quorum-of-reachable': 'the majority is taken of those voters that were heard lately',
  '31-incarnations-mixed': 'what an earlier life of a server said counts for its new one',
  '32-config-not-rolled-back': 'a configuration stays in force when its entry is overwritten',
  '33-config-at-commit': 'a configuration holds only when it is committed, not as soon as it is in the log',
  '34-removed-leader-counts': 'a leader that removes itself goes on counting itself',
  '35-read-before-own-commit': 'a new leader answers reads before it committed an entry of its own term',
  '36-late-acks-confirm-reads': 'an answer to a message from before a read confirms that read',
  '37-read-index-changes': 'the index that was confirmed is not the one that is answered',
  '38-read-without-round': 'a leader answers reads without asking anyone whether it is the leader still',
  '39-lease-read': 'a leader answers reads at once when a majority was heard lately',
  '40-read-before-apply': 'a read is served before its index is applied',
  '41-pre-vote-term-ignored': 'a newer term in a pre-vote or its answer is not adopted',
  '43-pre-vote-reply-stale': 'an answer to a pre-vote from a server with an older term is ignored',
  '44-no-check-quorum': 'a leader that reaches no majority goes on leading',
  '45-transfer-for-ever': 'a transfer that was interrupted is never over',
  '47-candidate-refuses-snapshot': 'a candidate does not take a snapshot of the leader of its term',
  '48-heartbeats-do-not-probe':
    'heartbeats do not compare logs, so a server without entries is not found while idle',
  '49-reads-dropped': 'reads are dropped silently when the leader changes',
  '50-no-suspend-rule': 'a server that was paused campaigns, or goes on leading, as if no time had passed',
};
