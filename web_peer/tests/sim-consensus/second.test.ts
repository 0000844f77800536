/* Whatever goes wrong, the group keeps what it committed and comes to life again: the second half of the seeds. */

import { runs } from './runs';

runs('second');
