/*
 * The bytes of a command of the log (twin of peer/state/member_commands.py). Pure.
 *
 * Which commands there are stands in schema/commands.toml; mesh_state.ts says what they mean.
 */

import { type Codec, dump, load, text } from '../wire/json_codec';
import { CODECS, type KnownCommand } from './generated/commands';

/** A command of a newer version: kept as it came and skipped. */
export interface UnknownCommand {
  readonly kind: 'Unknown';
  readonly name: string;
  readonly body: string;
}

export type Command = KnownCommand | UnknownCommand;

/** Canonical JSON of one command: {"kind": name, ...fields}. A command of a newer version is as it came. */
export function encodeCommand(command: Command): Uint8Array<ArrayBuffer> {
  if (command.kind === 'Unknown') return new TextEncoder().encode(command.body);
  return dump((CODECS[command.kind] as Codec<KnownCommand>).encode(command));
}

/** The command in `bytes`; what this build does not know is an UnknownCommand. Raises BadCommand. */
export function decodeCommand(bytes: Uint8Array): Command {
  const body = load(bytes);
  const kind = text.decode(body['kind'], 'kind');
  if (Object.hasOwn(CODECS, kind)) return CODECS[kind as KnownCommand['kind']].decode(body, kind);
  return { kind: 'Unknown', name: kind, body: new TextDecoder().decode(bytes) };
}

/** Raises BadCommand, naming the field, when `command` breaks a bound: to be asked before it is proposed. */
export function checkCommand(command: Command): void {
  decodeCommand(encodeCommand(command));
}
