/* What each peer can see, in plain words: on the page where people join, and where they invite others. */

const SEEN: readonly (readonly [who: string, what: string])[] = [
  [
    'Everyone in the mesh',
    'reads every conversation in it, but for those that somebody keeps in their own tab, and sees who is here, under which name, what each lends, from which network address, and how likely it is to leave, which shows whether a tab is hidden or on battery. The machines that keep the mesh store conversations on their disks.',
  ],
  [
    'Peers that run a part of the model',
    'compute on what you ask. The first and last part handle its words; those between handle numbers from which words can be guessed. Take all of them as able to read it. Who asks with "shoal chat --pin-ends", or keeps words in this tab, sends them no words, only numbers, which the first part can still turn back into words if it sets out to.',
  ],
  [
    'The server behind the link',
    'learns who meets whom, when, under which name and from which address. What is said never passes through it.',
  ],
  ['Others on the way', 'see that machines talk with each other. All of it is encrypted between them.'],
];

/** `open`: shown at once, as to whoever is about to join. */
export function Privacy({ open = false }: { open?: boolean }) {
  return (
    <details class="privacy" open={open}>
      <summary>What each peer can see</summary>
      <dl>
        {SEEN.map(([who, what]) => (
          <div key={who}>
            <dt>{who}</dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <p>So a mesh is for people who trust each other: a link is a key to all of it.</p>
    </details>
  );
}
