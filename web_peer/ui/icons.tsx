/* The page's few drawings. Each takes the colour of the text around it and is hidden from screen readers. */

const PATHS = {
  send: 'M12 19V5M5.5 11.5 12 5l6.5 6.5',
  stop: 'M7 7h10v10H7z',
  copy: 'M9 9h10v11H9zM5 15V4h10',
  done: 'M5 12.5 10 17.5 19 7',
  again: 'M19.5 12a7.5 7.5 0 1 1-2.2-5.3L19.5 9M19.5 4v5h-5',
  share: 'M12 15V4M8 7.5 12 3.5l4 4M5 12v8h14v-8',
  looks: 'M12 3.5a8.5 8.5 0 1 0 8.5 8.5A6.5 6.5 0 0 1 12 3.5z',
  settings: 'M4 7h9M17 7h3M4 17h3M11 17h9M15 4.5v5M9 14.5v5',
  close: 'M6 6l12 12M18 6 6 18',
  fresh: 'M12 5v14M5 12h14',
  down: 'M12 5v14M5.5 12.5 12 19l6.5-6.5',
  keys: 'M3.5 7h17v10h-17zM7 10.5h.01M10.3 10.5h.01M13.7 10.5h.01M17 10.5h.01M8 13.8h8',
  chat: 'M4 5h16v11H10l-4 4v-4H4z',
  mesh: 'M6 8.5 18 6M6 8.5l5.5 9M18 6l-6.5 11.5M6 11a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM18 8.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM11.5 20.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5z',
  part: 'M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4.5 20.5c.8-4 3.8-6 7.5-6s6.7 2 7.5 6',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" data-name={name} viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}

/** Three fish that swim together. */
export function Mark() {
  const fish = 'M0 0c2.6-3.2 7.4-3.6 10.2-.9L13 -3.2v6.4L10.2.9C7.4 3.6 2.6 3.2 0 0z';
  return (
    <svg class="mark" viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <path d={fish} transform="translate(13.5 8)" opacity="0.55" />
      <path d={fish} transform="translate(3 16) scale(1.18)" />
      <path d={fish} transform="translate(14.5 24)" opacity="0.8" />
    </svg>
  );
}
