/*
 * Decides which models answer in words beside the mesh's own, under which names, and what is known of their plans
 * (twin of peer/state/decoders.py).
 *
 * Pure. How the mesh looks to what serves one of them is in decoder_sight.ts.
 */

import { type Codec, table } from '../wire/json_codec';
import { sha256Hex } from '../wire/sha256';
import { type Decoder, type DecoderCommand, MAX_DECODERS, decoderCodec } from './generated/commands';

/** Of 16 of a session's id; 6 others are its own, and 4 count its moves. */
export const MARK_BYTES = 6;

/** By name. */
export type Decoders = ReadonlyMap<string, Decoder>;

interface Names {
  has(name: string): boolean;
}

/** The decoders after `command`, or why it changes nothing. `taken`: names of other models of the mesh. */
export function deciding(
  decoders: Decoders,
  taken: Names,
  members: Names,
  command: DecoderCommand,
): Decoders | string {
  const { name } = command;
  const before = decoders.get(name);
  if (command.kind === 'DecoderOffered') {
    if (taken.has(name) || before !== undefined) {
      return `a model of this mesh is called ${name} already: offer it under another name`;
    }
    if (decoders.size >= MAX_DECODERS) {
      return `${MAX_DECODERS} further models answer in words, which is the most; withdraw one`;
    }
    const { model, units, context, sessions, objective } = command;
    const made: Decoder = {
      ...{ model, units, context, sessions, objective },
      ...{ plan: null, proposed: null, refused: '', held: new Map() },
    };
    return new Map(decoders).set(name, made);
  }
  if (before === undefined) return `no model that answers in words is offered under the name ${name}`;
  const after = afterOne(before, members, command);
  return typeof after === 'string' ? after : new Map(decoders).set(name, after);
}

function afterOne(
  before: Decoder,
  members: Names,
  command: Exclude<DecoderCommand, { kind: 'DecoderOffered' }>,
): Decoder | string {
  switch (command.kind) {
    case 'DecoderPlanned':
      if (command.plan.stages.some(({ helpers = [], shares = [] }) => helpers.length + shares.length > 0)) {
        return 'a stage of a further model is computed by one peer, not by a team';
      }
      return { ...before, proposed: command.plan, refused: '' };
    case 'DecoderActivated':
      if (before.proposed?.version !== command.version) {
        return 'this plan is not the one that was proposed last';
      }
      return { ...before, plan: before.proposed, proposed: null, refused: '' };
    case 'DecoderRefused':
      return { ...before, proposed: null, refused: command.reason };
    case 'DecoderHeld':
      if (!members.has(command.peer)) return 'there is no such member';
      return { ...before, held: new Map(before.held).set(command.peer, command.held) };
    default:
      return command satisfies never;
  }
}

/** The same where `peer` holds nothing: it left, or begins anew. */
export function unheld(decoders: Decoders, peer: string): Decoders {
  if (![...decoders.values()].some(({ held }) => held.has(peer))) return decoders;
  return new Map(
    [...decoders].map(([name, decoder]) => {
      const held = new Map([...decoder.held].filter(([each]) => each !== peer));
      return [name, { ...decoder, held }];
    }),
  );
}

/** The decoders but that of this name. */
export function withoutDecoder(decoders: Decoders, name: string): Decoders {
  return decoders.has(name) ? new Map([...decoders].filter(([each]) => each !== name)) : decoders;
}

/** What the ids of sessions begin with of the further model of this name and id, in hex digits. */
export function markOf(name: string, model: string): string {
  return sha256Hex(`${name} ${model}`).slice(0, 2 * MARK_BYTES);
}

// --- wire

export const decodersCodec: Codec<Decoders> = table(decoderCodec, MAX_DECODERS);
