import { expect, it } from 'vitest';

import { wishesOf } from '../src/wishes';

it.each([
  ['http://h/#m.i', { link: 'http://h/#m.i', name: null, memoryBytes: null }],
  ['http://h/#m.i&name=Den%20%26%20co&memory=5', { link: 'http://h/#m.i', name: 'Den & co', memoryBytes: 5 }],
  ['http://h/#m.i&memory=-1&name=', { link: 'http://h/#m.i', name: null, memoryBytes: null }],
  ['http://h/#m.i&memory=many&more', { link: 'http://h/#m.i', name: null, memoryBytes: null }],
  ['', { link: '', name: null, memoryBytes: null }],
])('%s', (address, wishes) => {
  expect(wishesOf(address)).toEqual(wishes);
});
