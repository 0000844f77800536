/*
 * What a tab says of itself when it is asked: figures for people (twin of peer/member/status_report.py). Nothing of
 * what people ask or get is in it.
 */

import type { StageCore } from '../session/stage';
import { nowS } from '../transport/ticker';
import type { CheckReport, StatusAnswer } from '../wire/generated/requests';
import type { MyFacts } from './lending';
import type { PeerParts } from './peer_parts';

export const AGENT = 'shoal/0.1.0 (browser)';

/** The answer to `status`. */
export function reportOf(parts: PeerParts, name: string, mine: MyFacts, checks: CheckReport): StatusAnswer {
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
    runs: mine.runs,
    rssBytes: mine.weightBytes + mine.kvBytes,
    weightBytes: mine.weightBytes,
    kvBytes: mine.kvBytes,
    pledgeBytes: mine.pledgeBytes,
    sessions: sum((each) => each.sessions()),
    active: sum((each) => each.active()),
    steps: sum((each) => each.stepsRun),
    replayedBytes: core.replayedBytes,
    logBytes: core.logBytes + core.prefixes.logBytes,
    takenOver: core.takenOver,
    copied: core.copied,
    breakers: [
      ...new Map([
        ...(leadership.current?.breakers() ?? []),
        ...sessions.breakers.shown(Math.floor(nowS() * 1000)),
      ]),
    ],
    tokens: sum((each) => each.tokensSampled),
    stepUs: stage.units?.stepTimes.mediansUs() ?? [],
    tokensPerSMilli: Math.round(mine.tokensPerS * 1000),
    rttUs: new Map(rtts),
    checks,
  };
}
