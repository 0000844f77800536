/* Who is here, as a list: the picture in words. */

import type { Signal } from '@preact/signals';

import { memberText, STATUS_WORDS } from './picture';
import type { View } from './view';
import { bytesText } from './words';

export function People({ view, lit }: { view: View; lit: Signal<string> }) {
  const mesh = view.mesh.value;
  const here = mesh.members.filter((member) => member.status !== 'gone').length;
  return (
    <section class="people" aria-label="Who is here">
      <h2>
        Who is here <span class="count">{here}</span>
      </h2>
      <ul>
        {mesh.members.map((member) => (
          <li
            key={member.id}
            class={`is-${member.status}`}
            onPointerEnter={() => (lit.value = member.id)}
            onPointerLeave={() => (lit.value = '')}
          >
            <span class="status" title={STATUS_WORDS[member.status]} aria-hidden="true" />
            <span class="who">
              <span class="name">{member.name}</span>
              {member.you && <span class="tag">you</span>}
              {member.coordinates && (
                <span class="tag" title="Plans who runs what">
                  coordinator
                </span>
              )}
              <span class="visually-hidden">{STATUS_WORDS[member.status]}</span>
              <span class="does">
                {memberText(member, mesh.units)}
                {member.runsOn !== '' && ` · ${member.runsOn}`}
              </span>
            </span>
            <span class="with" title="Memory lent">
              {member.lends && member.lentBytes > 0 && bytesText(member.lentBytes)}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}
