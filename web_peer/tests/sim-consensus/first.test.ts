/* Whatever goes wrong, the group keeps what it committed and comes to life again: the first half of the seeds. */

import { runs } from './runs';

runs('first');
