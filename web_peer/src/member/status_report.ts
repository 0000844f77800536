/*
 * What a tab says of itself when it is asked: figures for people (twin of peer/member/status_report.py). Nothing of
 * what people ask or get is in it.
 */

import type { StageCore } from '../session/stage';
import { nowS } from '../transport/ticker';
import type { Body } from '../wire/json_codec';
import type { MyFacts } from './lending';
import type { PeerParts } from './peer_parts';

export const AGENT = 'shoal/0.1.0 (browser)';

/** The body of `status`, but for the sections of other parts. */
export function reportOf(parts: PeerParts, name: string, mine: MyFacts): Body {
  const { links, leadership, stage, sessions } = parts;
  const { core } = stage;
  const cores = parts.stages().map((each) => each.core);
  const sum = (of: (core: StageCore) => number): number => cores.reduce((all, each) => all + of(each), 0);
  const rtts = links.connectedPeers().map((peer) => {
    return [peer, Math.round((links.connection(peer)?.rttS ?? 0) * 1e6)] as const;
  });
  return {
    name,
    agent: AGENT,
    runs: mine.runs.map(({ first, stop }) => [first, stop]),
    rss_bytes: mine.weightBytes + mine.kvBytes,
    weight_bytes: mine.weightBytes,
    kv_bytes: mine.kvBytes,
    pledge_bytes: mine.pledgeBytes,
    sessions: sum((each) => each.sessions()),
    active: sum((each) => each.active()),
    steps: sum((each) => each.stepsRun),
    replayed_bytes: core.replayedBytes,
    log_bytes: core.logBytes + core.prefixes.logBytes,
    taken_over: core.takenOver,
    copied: core.copied,
    breakers: [
      ...new Map([
        ...(leadership.current?.breakers() ?? []),
        ...sessions.breakers.shown(Math.floor(nowS() * 1000)),
      ]),
    ].map((pair) => [...pair]),
    tokens: sum((each) => each.tokensSampled),
    step_us: stage.units?.stepTimes.mediansUs().map((each) => [...each]) ?? [],
    tokens_per_s_milli: Math.round(mine.tokensPerS * 1000),
    rtt_us: Object.fromEntries(rtts),
  };
}
