/* What each peer can see, in plain words: on the page where people join, and where they invite others. */

const SEEN: readonly (readonly [who: string, what: string])[] = [
  [
    'Everyone in the mesh',
    'reads every conversation that is not private, and sees who is here, under which name, what each lends, from which network address, and how likely it is to leave, which shows whether a tab is hidden or on battery. The machines that keep the mesh store its conversations on their disks; private ones are kept in your own browser.',
  ],
  [
    'Peers that run a part of the model',
    'compute on what you ask, private or not. The first and last part handle its words; those between handle numbers from which words can be guessed. Assume that all of them can read it. With “Keep my words in this tab” (in a terminal: shoal chat --pin-ends) they get numbers only, which the first part can still turn back into words if it sets out to.',
  ],
  [
    'The server behind the link',
    'learns who meets whom, when, under which name and from which address. What is said never passes through it.',
  ],
  ['Others on the way', 'see that machines talk with each other. All of it is encrypted between them.'],
];

/** Closed at first: whoever wants to know opens it. */
export function Privacy() {
  return (
    <details class="privacy">
      <summary>Who can see what</summary>
      <dl>
        {SEEN.map(([who, what]) => (
          <div key={who}>
            <dt>{who}</dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <p>A mesh is for people who trust each other: a link is a key to all of it.</p>
    </details>
  );
}
