/*
 * Says at once when something that must hold does not, from what the cores are told and what they want done.
 *
 * Nothing here looks inside a core: logs, votes and commits are followed through persist, send and apply. What is
 * checked, with the sections of Ongaro's thesis: one leader per term and one vote per server and term (3.4), entries
 * that are the same wherever index and term are (3.5), leaders that only append (3.5), commits by a majority that has
 * the entry on its disks and only of the leader's own term (3.6), leaders that have everything committed (3.6.3), the
 * same history applied everywhere (3.6.3), changes of one voter at a time (4.1), votes asked for before terms rise
 * (9.6), leaders that lead no longer than they hear a majority (6.2), reads that see all that was answered before
 * (6.4).
 */

import type { Message } from '../../src/consensus/messages';
import type { Config, Entry } from '../../src/consensus/records';
import type {
  Apply,
  Persist,
  ReadReady,
  Restore,
  Role,
  Settings,
  StoreSnapshot,
} from '../../src/consensus/events';
import { Machine, sameEntry, Wrong } from './disk';
import { configOf, type Member } from './member';

const MOST_TERMS = 2 ** 20;

/** A key for an entry. */
function place(index: number, term: number): number {
  return index * MOST_TERMS + term;
}

function majority(config: Config, has: (voter: string) => boolean): boolean {
  const { voters } = config;
  return 2 * voters.filter(has).length > voters.length;
}

function spelt({ servers }: Config): string {
  return servers
    .map(({ id, incarnation, voter }) => (voter ? id : `(${id})`) + String(incarnation))
    .join(' ');
}

/** Everything that was ever seen in one run. Each method raises Wrong. */
export class Invariants {
  committed = 1;
  applied = 1; // the highest anywhere: a client can have heard of it
  private readonly settings: Settings;
  private readonly leaders = new Map<number, string>(); // by term: a life
  private readonly votes = new Map<string, string>(); // by life and term: for whom
  private readonly granted = new Map<string, Set<string>>(); // by term and candidate
  private readonly wouldGrant = new Map<string, Set<string>>();
  private readonly entries = new Map<number, { readonly before: number; readonly entry: Entry }>();
  private readonly stored = new Map<number, Set<string>>(); // by entry: lives
  private readonly covered = new Map<string, number>(); // by life: by a durable snapshot
  private readonly committedTerms = new Map([[1, 1]]);
  private readonly committedIn = new Map([[1, 1]]); // by index: the term of the leader that committed it
  private readonly states = new Map([[1, 0]]); // by index: the checksum of the history up to it

  /** All the first voters have a snapshot at entry 1 of term 1. */
  constructor(settings: Settings) {
    this.settings = settings;
  }

  committedTermAt(index: number): number {
    return this.committedTerms.get(index) ?? 0;
  }

  // --- what a core wants

  /** Before it is written to the log of `member`. */
  persist(member: Member, { term, vote, truncateFrom, entries }: Persist): void {
    const { issued, id, log } = member;
    const leads = member.role === 'leader' && member.term === term;
    if (term < issued.term) throw new Wrong(`${id} goes back from term ${issued.term} to ${term}`);
    if (term === issued.term && issued.vote !== '' && vote !== issued.vote) {
      throw new Wrong(`${id} forgets in term ${term} that it voted for ${issued.vote}`);
    }
    member.issued = { term, vote };
    if (truncateFrom > 0) {
      this.dropped(member, truncateFrom, 'truncates');
      if (leads) {
        throw new Wrong(`${id} leads term ${term} and drops entries of its own log`);
      }
    }
    let before = member.termAt((truncateFrom > 0 ? truncateFrom : log.last + 1) - 1);
    log.write(truncateFrom, entries);
    if (truncateFrom > 0) member.configs = member.configs.filter(({ index }) => index < truncateFrom);
    for (const entry of entries) {
      if (entry.term < before || entry.term > term) {
        throw new Wrong(`${id} in term ${term} writes an entry of term ${entry.term} after ${before}`);
      }
      const key = place(entry.index, entry.term);
      const known = this.entries.get(key);
      if (known === undefined) this.entries.set(key, { before, entry });
      else if (before > 0 && known.before > 0 && before !== known.before) {
        throw new Wrong(`entry ${entry.index} of term ${entry.term} follows ${known.before} and ${before}`);
      } else if (!sameEntry(known.entry, entry)) {
        throw new Wrong(`entry ${entry.index} of term ${entry.term} is not the same everywhere`);
      }
      if (leads && term > (this.committedIn.get(entry.index) ?? term)) {
        throw new Wrong(`leader ${id} writes ${entry.index}, committed up to ${this.committed}`);
      }
      if (entry.kind === 'config') this.config(member, entry);
      before = entry.term;
    }
  }

  /** Before the log of `member` is cut. */
  stores(member: Member, { snapshot, first, last }: StoreSnapshot): void {
    const { id, snapshotAt } = member;
    const { index, term, data, config } = snapshot;
    if (index > this.committed) {
      throw new Wrong(`${id} keeps a snapshot at ${index}, committed up to ${this.committed}`);
    }
    if (index < snapshotAt.index) {
      throw new Wrong(`${id} goes back to a snapshot at ${index} from ${snapshotAt.index}`);
    }
    if ((this.committedTerms.get(index) ?? term) !== term) {
      throw new Wrong(`${id} says that entry ${index} has term ${term}`);
    }
    const value = this.states.get(index);
    const machine = Machine.of(data);
    if (machine.index !== index || (value !== undefined && machine.value !== value)) {
      throw new Wrong(`the snapshot of ${id} at ${index} holds another history`);
    }
    if (first > index + 1)
      throw new Wrong(`${id} keeps entries from ${first} on after a snapshot at ${index}`);
    this.dropped(member, Math.max(last, index) + 1, 'cuts away');
    member.log.cut(first, last);
    member.snapshotAt = { index, term };
    const later = member.configs.filter((found) => found.index > index && found.index <= last);
    member.configs = [{ index, config }, ...later];
  }

  /** Before it leaves `member`. */
  sends(member: Member, to: string, { term, body }: Message): void {
    const { id, disk } = member;
    if (body.kind === 'vote_reply' && body.granted) {
      if (this.votes.get(`${member.life} ${term}`) !== to) {
        throw new Wrong(`${id} grants ${to} a vote in term ${term} that it has not stored`);
      }
      gather(this.granted, `${term} ${to}`, id);
    } else if (body.kind === 'pre_vote_reply' && body.granted) {
      gather(this.wouldGrant, `${body.campaignTerm} ${to}`, id);
    } else if (body.kind === 'append_reply' && body.ok) {
      if (body.index > Math.max(disk.log.last, disk.snapshot?.index ?? 0)) {
        throw new Wrong(`${id} acknowledges ${body.index} and has not stored it`);
      }
      const entry = member.log.at(body.index);
      const stored = disk.log.at(body.index);
      if (entry !== undefined && stored !== undefined && !sameEntry(entry, stored)) {
        throw new Wrong(`${id} acknowledges ${body.index} and has stored another`);
      }
    } else if (body.kind === 'append' && member.role === 'leader' && term === member.term) {
      this.claims(member, body.commit);
      const last = body.entries.at(-1)?.index ?? 0;
      if (last > this.committed && !member.config.voters.includes(to)) {
        throw new Wrong(`${id} sends the learner ${to} entries that are not committed`);
      }
    }
  }

  /** At `clock` of its own, before `member.role` changes. */
  became(member: Member, { role, term, leader }: Role, clock: number): void {
    const { id } = member;
    if (term < member.term) throw new Wrong(`${id} goes back from term ${member.term} to ${term}`);
    if (role === 'candidate' && (member.role !== 'candidate' || member.term !== term)) {
      const would = this.wouldGrant.get(`${term} ${id}`);
      const may = majority(member.config, (voter) => voter === id || would?.has(voter) === true);
      if (!member.toldToCampaign && !may) {
        throw new Wrong(`${id} campaigns in term ${term} and was not told that it may`);
      }
      member.toldToCampaign = false;
    }
    if (role === 'leader' && (member.role !== 'leader' || member.term !== term)) {
      this.elected(member, term, clock);
    } else if (role === 'leader' && member.led.term !== term) {
      throw new Wrong(`${id} leads term ${term} after term ${member.led.term}`);
    }
    const known = this.leaders.get(term);
    if (leader !== '' && known !== undefined && !known.startsWith(leader)) {
      throw new Wrong(`${id} takes ${leader} for the leader of term ${term}`);
    }
  }

  /** The leader `member` says that everything up to `commit` is committed. */
  private claims(member: Member, commit: number): void {
    if (commit <= this.committed) return;
    const { id, led } = member;
    if (member.termAt(commit) !== led.term) {
      throw new Wrong(
        `${id} commits ${commit} of term ${member.termAt(commit)} by counting in term ${led.term}`,
      );
    }
    if (!this.counted(member, commit)) {
      const have = [...(this.stored.get(place(commit, led.term)) ?? [])].join(' ');
      throw new Wrong(`${id} commits ${commit} of term ${led.term}, which only ${have} have stored`);
    }
    for (let index = this.committed + 1; index <= commit; index++) {
      this.committedTerms.set(index, member.termAt(index));
      this.committedIn.set(index, led.term);
    }
    this.committed = commit;
  }

  /** Takes the entries into the state machine of `member`. */
  applies(member: Member, { entries }: Apply): void {
    const { id, machine } = member;
    const last = entries.at(-1)?.index ?? 0;
    if (last > this.committed) {
      if (member.led.term === 0) throw new Wrong(`${id} applies ${last}, committed up to ${this.committed}`);
      this.claims(member, last);
    }
    for (const entry of entries) {
      const { index, term } = entry;
      if (index !== machine.index + 1) throw new Wrong(`${id} applies ${index} after ${machine.index}`);
      if ((this.committedTerms.get(index) ?? term) !== term) {
        throw new Wrong(`${id} applies ${index} of term ${term}, committed is another`);
      }
      if (!sameEntry(member.disk.log.at(index), entry)) {
        throw new Wrong(`${id} applies ${index}, which is not on its disk`);
      }
      machine.take(entry);
      this.history(member, `applies another entry ${index} than others did`);
    }
  }

  /** The state machine of `member` was replaced. */
  restores(member: Member, { snapshot }: Restore): void {
    const { id, disk } = member;
    if (snapshot.index < member.machine.index) {
      throw new Wrong(`${id} goes back to a snapshot at ${snapshot.index} from ${member.machine.index}`);
    }
    if (disk.snapshot === null || disk.snapshot.index < snapshot.index) {
      throw new Wrong(`${id} restores a snapshot at ${snapshot.index} that it has not stored`);
    }
    member.machine = Machine.of(snapshot.data);
    this.history(member, `restores another history up to ${snapshot.index}`);
  }

  /** `floor`: what a client can have known to be applied when it asked. */
  read(member: Member, { index }: ReadReady, floor: number): void {
    const { id, saidApplied } = member;
    if (index < floor) throw new Wrong(`${id} reads at ${index} what was applied up to ${floor} before`);
    if (index > this.committed) throw new Wrong(`${id} reads at ${index}, committed up to ${this.committed}`);
    if (saidApplied < index) throw new Wrong(`${id} reads at ${index} and has applied ${saidApplied}`);
  }

  // --- what happens to a core

  /** `effect` of `member` was written. */
  durable(member: Member, effect: Persist | StoreSnapshot): void {
    const { life, disk } = member;
    if (disk.vote !== '') this.vote(member, disk.term, disk.vote);
    if (effect.kind === 'store_snapshot') {
      this.covered.set(life, Math.max(effect.snapshot.index, this.covered.get(life) ?? 0));
    } else for (const { index, term } of effect.entries) gather(this.stored, place(index, term), life);
  }

  /** Before `message` comes to `member`, whose clock says `clock`. */
  hears(member: Member, { term, sender, body }: Message, clock: number): void {
    if (term < member.term) return;
    if (body.kind === 'timeout_now') {
      member.toldToCampaign = true;
      return;
    }
    if (member.role !== 'leader' || term !== member.term) return;
    if (body.kind === 'append' || body.kind === 'install') {
      throw new Wrong(`${sender} and ${member.id} both lead term ${term}`);
    }
    member.heard.set(sender, clock);
  }

  /** After the clock of `member` came to `clock`: who still leads has heard a majority lately. */
  ticked(member: Member, clock: number): void {
    if (member.role !== 'leader' || clock <= member.excusedUntil) return;
    const lately = clock - this.settings.electionMaxMs - 2 * this.settings.heartbeatMs - 1;
    const { id, heard } = member;
    if (!majority(member.config, (voter) => voter === id || (heard.get(voter) ?? -Infinity) >= lately)) {
      throw new Wrong(`${id} leads term ${member.term} and has heard no majority for an election`);
    }
  }

  // --- inside

  private vote(member: Member, term: number, candidate: string): void {
    const key = `${member.life} ${term}`;
    const known = this.votes.get(key);
    if (known === undefined) this.votes.set(key, candidate);
    else if (known !== candidate) {
      throw new Wrong(`${member.id} votes for ${known} and ${candidate} in term ${term}`);
    }
  }

  private elected(member: Member, term: number, clock: number): void {
    const { id, life, disk, config } = member;
    const known = this.leaders.get(term);
    if (known === undefined) this.leaders.set(term, life);
    else if (known !== life) throw new Wrong(`${known} and ${life} both lead term ${term}`);
    if (disk.term !== term || disk.vote !== id) {
      throw new Wrong(`${id} leads term ${term} by a vote of its own that it has not stored`);
    }
    const granted = this.granted.get(`${term} ${id}`);
    if (!majority(config, (voter) => voter === id || granted?.has(voter) === true)) {
      throw new Wrong(`${id} leads term ${term} without the votes of a majority of ${spelt(config)}`);
    }
    let index = this.committed; // what leaders of newer terms committed need not be there (3.6.3)
    while ((this.committedIn.get(index) ?? 0) >= term) index -= 1;
    if (index > member.snapshotAt.index && member.termAt(index) !== this.committedTerms.get(index)) {
      throw new Wrong(`${id} leads term ${term} without entry ${index}, which is committed`);
    }
    let { last } = member.log;
    while (member.termAt(last) === term) last -= 1;
    member.led = { term, last };
    member.leading = [{ index: 0, config }];
    member.heard = new Map(config.voters.map((voter) => [voter, clock]));
  }

  /** Entries from `first` on go away: none of them may be committed. */
  private dropped(member: Member, first: number, how: string): void {
    if (first > this.committed || first <= member.snapshotAt.index) return;
    const entry = member.log.at(first);
    const since = this.committedIn.get(first) ?? 0;
    if (entry === undefined || member.issued.term < since) return; // in that term it was not committed yet
    if (this.committedTerms.get(first) === entry.term) {
      throw new Wrong(`${member.id} ${how} entry ${first} of term ${entry.term}, which is committed`);
    }
  }

  private config(member: Member, entry: Entry): void {
    const { id } = member;
    const config = configOf(entry);
    const last = member.configs.at(-1);
    if (last !== undefined) {
      const changed =
        last.config.voters.filter((voter) => !config.voters.includes(voter)).length +
        config.voters.filter((voter) => !last.config.voters.includes(voter)).length;
      if (changed > 1) throw new Wrong(`${id} changes ${spelt(last.config)} to ${spelt(config)} at once`);
      if (member.role === 'leader' && entry.term === member.term) {
        if (!this.canKnow(member, last.index)) {
          throw new Wrong(`${id} changes members at ${entry.index}, the change at ${last.index} is pending`);
        }
        if (!this.canKnow(member, member.led.last + 1)) {
          throw new Wrong(`${id} changes members in term ${entry.term}, nothing of it is committed`);
        }
      }
    }
    member.configs.push({ index: entry.index, config });
    if (member.role === 'leader') member.leading.push({ index: entry.index, config });
  }

  /** Whether the leader `member` may take `index` for committed. */
  private canKnow(member: Member, index: number): boolean {
    if (index <= this.committed) return true;
    const { term } = member.led;
    for (let later = index; later <= member.log.last; later++) {
      if (member.termAt(later) !== term) continue;
      if (this.counted(member, later)) return true;
    }
    return false;
  }

  /**
   * Whether the leader `member` has a majority for `index`: by the newest configuration, or by the one before while the
   * newest comes after `index`, as that may have been committed before it was there.
   */
  private counted(member: Member, index: number): boolean {
    for (const { index: at, config } of member.leading.toReversed()) {
      if (this.backed(config, index, member.led.term)) return true;
      if (at <= index) break;
    }
    return false;
  }

  private backed({ servers }: Config, index: number, term: number): boolean {
    const have = this.stored.get(place(index, term));
    const voters = servers.filter(({ voter }) => voter);
    const backing = voters.filter(({ id, incarnation }) => {
      const life = `${id}${incarnation}`;
      return have?.has(life) === true || (this.covered.get(life) ?? 0) >= index;
    });
    return 2 * backing.length > voters.length;
  }

  private history({ id, machine }: Member, otherwise: string): void {
    const value = this.states.get(machine.index);
    if (value === undefined) this.states.set(machine.index, machine.value);
    else if (value !== machine.value) throw new Wrong(`${id} ${otherwise}`);
    this.applied = Math.max(this.applied, machine.index);
  }
}

function gather<Key>(sets: Map<Key, Set<string>>, key: Key, value: string): void {
  const held = sets.get(key);
  if (held === undefined) sets.set(key, new Set([value]));
  else held.add(value);
}
