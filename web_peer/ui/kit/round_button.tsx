/* A round button that says what it does by a drawing. */

import { Icon, type IconName } from './icons';

/** `label` is for screen readers, `title` for the pointer, and `act` is called when it is pressed. */
export function RoundButton({
  icon,
  label,
  title = label,
  more = '',
  act,
}: {
  icon: IconName;
  label: string;
  title?: string;
  more?: string; // classes
  act: () => void;
}) {
  return (
    <button type="button" class={`quiet round ${more}`} aria-label={label} title={title} onClick={act}>
      <Icon name={icon} />
    </button>
  );
}
