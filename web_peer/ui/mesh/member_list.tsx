/* Who is here, as a list: the picture in words. Each opens to a card with all that is known of the peer. */

import type { Signal } from '@preact/signals';

import { memberText, STATUS_WORDS } from './mesh_geometry';
import type { Coordination, Member, View } from '../app/view';
import { bytesText } from '../kit/formatting';

function Line({ member, units }: { member: Member; units: number }) {
  return (
    <>
      <span class="status" title={STATUS_WORDS[member.status]} aria-hidden="true" />
      <span class="who">
        <span class="name">{member.name}</span>
        {member.you && <span class="visually-hidden">, </span>}
        {member.you && <span class="tag">you</span>}
        {member.coordinates && <span class="visually-hidden">, </span>}
        {member.coordinates && (
          <span class="tag" title="Decides who runs which part of the model">
            coordinator
          </span>
        )}
        <span class="visually-hidden">, {STATUS_WORDS[member.status]}, </span>
        <span class="does">{memberText(member, units)}</span>
      </span>
      {member.lends && member.lentBytes > 0 && (
        <span class="with" title="Memory lent">
          <span class="visually-hidden">, lends </span>
          {bytesText(member.lentBytes)}
        </span>
      )}
    </>
  );
}

function Card({ member }: { member: Member }) {
  return (
    <dl class="card-facts">
      {member.facts.map(({ label, value, tone }, at) => (
        <div key={at} class={`is-${tone}`}>
          <dt>{label}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** Who decides, in one line; opens to what the log says. */
function Coordinates({ of, answers }: { of: Coordination; answers: boolean }) {
  const { leader, term, voters, learners, lag } = of;
  const facts: readonly (readonly [label: string, value: string])[] = [
    ['Coordinator', leader === '' ? 'none' : leader],
    ['Term', String(term)],
    ['Voters', voters.join(', ')],
    ['Learners', String(learners)],
    ['Not committed yet', lag === 0 ? 'nothing' : `${lag} ${lag === 1 ? 'entry' : 'entries'}`],
  ];
  return (
    <details class={leader === '' ? 'coordination is-without' : 'coordination'}>
      <summary>
        <span>{leader === '' ? `No coordinator: ${withoutText(answers)}` : `Coordinator: ${leader}`}</span>
        <span class="with" />
      </summary>
      <dl class="card-facts">
        {facts.map(([label, value]) => (
          <div key={label}>
            <dt>{label}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}

const withoutText = (answers: boolean): string =>
  answers ? 'answers go on, nobody can come in' : 'no answers, and nobody can come in';

/** The list; `lit` is set to the id of the peer that is pointed at, "" for nobody. */
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
            onFocusIn={() => (lit.value = member.id)}
            onFocusOut={() => (lit.value = '')}
          >
            {member.facts.length > 0 ? (
              <details>
                <summary>
                  <Line member={member} units={mesh.units} />
                </summary>
                <Card member={member} />
              </details>
            ) : (
              <p class="line-of">
                <Line member={member} units={mesh.units} />
              </p>
            )}
          </li>
        ))}
      </ul>
      {mesh.coordination !== null && (
        <Coordinates of={mesh.coordination} answers={mesh.answers || mesh.runs} />
      )}
    </section>
  );
}
