import { expect, it } from 'vitest';

import { wishesOf } from '../../src/member/page_options';

const NONE = { link: 'http://h/#m.i', name: null, memoryBytes: null, entry: '' };

it.each([
  ['http://h/#m.i', NONE],
  ['http://h/#m.i&name=Den%20%26%20co&memory=5', { ...NONE, name: 'Den & co', memoryBytes: 5 }],
  ['http://h/#m.i&memory=-1&name=', NONE],
  ['http://h/#m.i&memory=many&more', NONE],
  ['http://h/#m.i&in=talk.secret&memory=5', { ...NONE, memoryBytes: 5, entry: 'talk.secret' }],
  ['', { ...NONE, link: '' }],
])('%s', (address, wishes) => {
  expect(wishesOf(address)).toEqual(wishes);
});
