/* A way by a third peer is checked, and its candidates stand behind the others. */

import { expect, test } from 'vitest';

import { BadCommand } from '../../src/errors';
import { wayOf, withCandidates } from '../../src/transport/udp_relay';
import { RELAY } from '../../src/wire/generated/requests';
import { readAnswer } from '../../src/wire/request_kind';

test('candidates stand behind those of the description', () => {
  const sdp = 'v=0\r\na=candidate:1 1 udp 1 192.0.2.1 9 typ host\r\na=end-of-candidates\r\n';
  expect(withCandidates(sdp, ['candidate:2 1 udp 1 192.0.2.2 9 typ host'])).toBe(
    'v=0\r\na=candidate:1 1 udp 1 192.0.2.1 9 typ host\r\n' +
      'a=candidate:2 1 udp 1 192.0.2.2 9 typ host\r\na=end-of-candidates\r\n',
  );
  expect(withCandidates('v=0\na=x\n', ['candidate:2'])).toBe('v=0\r\na=x\r\na=candidate:2\r\n');
});

test('a way is checked before it is used', () => {
  expect(wayOf({ hosts: ['192.0.2.1', '2001:db8::1'], mine: 7, theirs: 8 })).toEqual({
    theirs: [
      'candidate:third0 1 udp 65535 192.0.2.1 8 typ host',
      'candidate:third1 1 udp 65279 2001:db8::1 8 typ host',
    ],
    mine: [
      'candidate:third0 1 udp 65535 192.0.2.1 7 typ host',
      'candidate:third1 1 udp 65279 2001:db8::1 7 typ host',
    ],
  });
  for (const body of [
    {},
    { hosts: [], mine: 7, theirs: 8 },
    { hosts: ['192.0.2.1 9 typ host\r\na=x'], mine: 7, theirs: 8 },
    { hosts: [4], mine: 7, theirs: 8 },
    { hosts: Array.from({ length: 5 }, () => '192.0.2.1'), mine: 7, theirs: 8 },
    { hosts: ['192.0.2.1'], mine: 0, theirs: 8 },
    { hosts: ['192.0.2.1'], mine: 7, theirs: 65_536 },
    { hosts: ['192.0.2.1'], mine: 7, theirs: '8' },
  ]) {
    expect(() => wayOf(readAnswer(RELAY, body))).toThrow(BadCommand);
  }
});
