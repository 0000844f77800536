/*
 * What whoever opened the page wishes for this tab, behind the invite: `#<mesh>.<invite>&name=Den&memory=500000000`; and
 * the conversation that the link leads into (entry_links.ts).
 *
 * `shoal tabs` writes them. Like the invite they stay in the fragment, which no server sees. Pure.
 */

const MAX_NAME_CHARS = 64;

export interface Wishes {
  readonly link: string; // the invite link without them
  readonly name: string | null;
  readonly memoryBytes: number | null;
  readonly entry: string; // what stands behind `&in=`; "": nothing
}

/** Wishes that make no sense are none. */
export function wishesOf(address: string): Wishes {
  const [link = '', ...rest] = address.split('&');
  const found = new URLSearchParams(rest.join('&'));
  const name = found.get('name');
  const memory = Number(found.get('memory') ?? Number.NaN);
  return {
    link,
    name: name !== null && name !== '' && name.length <= MAX_NAME_CHARS ? name : null,
    entry: found.get('in') ?? '',
    memoryBytes: Number.isSafeInteger(memory) && memory > 0 ? memory : null,
  };
}
