/* Why, and after how long, a tab that could not come in tries again by itself. */

import { expect, it } from 'vitest';

import {
  BeginAnew,
  CannotServe,
  ConnectFailed,
  ConnectionLost,
  MeshError,
  NoRelay,
  NotAdmitted,
  NotLeader,
  NotNow,
  VersionMismatch,
} from '../../src/errors';
import { passes, retryPauseMs } from '../../src/member/join_retry';
import { fromWire, signalingError } from '../../src/signaling/errors';

const CASES: readonly (readonly [error: unknown, isPassing: boolean])[] = [
  [signalingError('ServerUnreachable', ''), true],
  [signalingError('Stopping', ''), true],
  [fromWire('TooManyJoins', ''), true],
  [fromWire('RoomFull', ''), true],
  [new ConnectFailed('nobody has been there'), true],
  [new ConnectionLost('it does not answer'), true],
  [new NotLeader('nobody coordinates'), true],
  [new NotAdmitted('no state of the mesh'), true],
  [new NotNow('measuring took too long'), true],
  [signalingError('WrongLink', ''), false],
  [signalingError('InviteExpired', ''), false],
  [signalingError('InviteRevoked', ''), false],
  [signalingError('InviteUsedUp', ''), false],
  [signalingError('UnknownInvite', ''), false],
  [signalingError('WrongMesh', ''), false],
  [signalingError('Replaced', ''), false],
  [signalingError('ProtocolMismatch', ''), false],
  [fromWire('Anything', ''), false],
  [new NoRelay('this mesh has no relay'), false],
  [new VersionMismatch('older'), false],
  [new CannotServe('this browser cannot compute'), false],
  [new BeginAnew('a life that is over'), false],
  [new MeshError('the founder closed the mesh'), false],
  [new TypeError('a defect'), false],
  ['thrown text', false],
];

it.each(CASES)('%s passes by itself: %s', (error, isPassing) => expect(passes(error)).toBe(isPassing));

it('waits twice as long after each failure, at most 30 s', () => {
  expect([1, 2, 3, 4, 5, 6, 7, 5000].map(retryPauseMs)).toEqual([
    ...[1000, 2000, 4000, 8000, 16_000],
    ...[30_000, 30_000, 30_000],
  ]);
});
