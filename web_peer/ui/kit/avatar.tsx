/* A person as a disc with a letter; the letter is in the colour of text, so that it can be read on every colour. */

import type { Person, Who } from '../app/view';

/** The disc of one person; `away` draws it as of somebody who is not here. */
export function Disc({ who, away = false }: { who: Who; away?: boolean }) {
  const letter = Array.from(who.name.trim())[0] ?? '?';
  return (
    <span class={away ? 'disc is-away' : 'disc'} style={{ '--who': who.colour }} aria-hidden="true">
      {letter.toUpperCase()}
    </span>
  );
}

/** "Ana, Tom and you are here", as discs. */
export function Discs({ people }: { people: readonly Person[] }) {
  const here = people.filter((person) => person.here);
  const shown = here.slice(0, 4);
  return (
    <span class="discs">
      {shown.map((person) => (
        <Disc key={person.id} who={person} />
      ))}
      {here.length > shown.length && <span class="disc is-rest">+{here.length - shown.length}</span>}
    </span>
  );
}
