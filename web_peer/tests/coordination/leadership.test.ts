/* What whoever leads checks before a member's words go into the log. */

import { expect, it } from 'vitest';

import type { Coordinating } from '../../src/coordination/coordinator_service';
import { keyOf, used } from '../../src/conversation/entry_links';
import { utf8 } from '../../src/signaling/keys';
import { Leadership } from '../../src/coordination/leadership';
import { type Command, decodeCommand } from '../../src/state/member_commands';
import type { MeshView } from '../../src/replication/mesh_view';
import { Requests } from '../../src/transport/request_table';

const MESH = 'm'.repeat(26);
const LINK = { conversation: 'tea', seed: new Uint8Array(32).fill(7) };
const SELF = { peer: 'b'.repeat(32), name: 'Bob', colour: '#888888' };

function leading(): { readonly requests: Requests; readonly taken: Command[] } {
  const taken: Command[] = [];
  const requests = new Requests(() => true);
  const links = { on: requests.on.bind(requests), onGone: () => () => undefined };
  const never = (): (() => void) => () => undefined;
  const view = {
    ...{ me: 'ann', replica: { begin: { mesh: MESH }, ready: true, leads: true } },
    ...{ subscribe: never, onRole: never, onLogLost: never, onLeft: never },
  };
  const leads = new Leadership(links, view as unknown as MeshView);
  const coordinating = {
    begin: () => undefined,
    admit: () => undefined,
    proposal: (_: string, { command }: { command: string }) => decodeCommand(utf8(command)),
    propose: (_: string, command: Command) => taken.push(command),
    settled: () => Promise.resolve([1, 1]),
  };
  leads.enable(() => coordinating as unknown as Coordinating);
  return { requests, taken };
}

it('who comes in with an invite holds its secret, however the words are spelled', async () => {
  const { requests, taken } = leading();
  const proven = await used(LINK, MESH, SELF);
  expect(proven.key).toBe(await keyOf(LINK));
  const forged = { ...proven, proof: `${proven.proof.startsWith('A') ? 'B' : 'A'}${proven.proof.slice(1)}` };
  for (const words of [
    JSON.stringify(forged),
    JSON.stringify(forged).replace('Participant', '\\u0050articipant'),
  ]) {
    await expect(requests.answer('bob', 'propose', { command: words })).rejects.toThrow(/signature/);
  }
  expect(taken).toEqual([]);
  await requests.answer('bob', 'propose', { command: JSON.stringify(proven) });
  expect(taken).toEqual([proven]);
});
