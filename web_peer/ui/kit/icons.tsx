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
  plan: 'M3.5 6h6v5h-6zM14.5 13h6v5h-6zM9.5 8.5h3.5a2 2 0 0 1 2 2V13M3.5 15.5h6',
  models: 'M12 3.5l8 4-8 4-8-4zM4 12l8 4 8-4M4 16.5l8 4 8-4',
  people:
    'M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM2.5 20c.6-3.6 3.2-5.5 6.5-5.5s5.9 1.9 6.5 5.5M16 4.3a3.5 3.5 0 0 1 0 6.4M18 14.9c1.9.8 3.1 2.5 3.5 5.1',
  list: 'M4 6.5h16M4 12h16M4 17.5h10',
  more: 'M5.5 12h.01M12 12h.01M18.5 12h.01',
  edit: 'M4 20h4L19.5 8.5a2.1 2.1 0 0 0-3-3L5 17zM14.5 7.5l3 3',
  before: 'M14.5 6 8.5 12l6 6',
  after: 'M9.5 6l6 6-6 6',
  on: 'M7 5.5v13l11-6.5z',
  save: 'M12 4v11M7.5 11 12 15.5 16.5 11M5 20h14',
  bring: 'M12 15.5V4M7.5 8.5 12 4l4.5 4.5M5 20h14',
  remove: 'M5 7h14M9.5 7V4.5h5V7M7 7l1 13h8l1-13',
  pin: 'M9 4h6l-.8 6 3.3 3.5h-11L9.8 10zM12 13.5V20',
  find: 'M10.5 17a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13zM15.2 15.2 20 20',
  lock: 'M6 11h12v9H6zM8.5 11V8a3.5 3.5 0 0 1 7 0v3',
  picture: 'M4 5h16v14H4zM4 16l4.5-4.5 4 4 2.5-2.5 5 5M15.5 9.5h.01',
  mic: 'M12 14.5a3 3 0 0 0 3-3V6a3 3 0 0 0-6 0v5.5a3 3 0 0 0 3 3zM5.5 11.5a6.5 6.5 0 0 0 13 0M12 18v3',
  part: 'M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4.5 20.5c.8-4 3.8-6 7.5-6s6.7 2 7.5 6',
} as const;

export type IconName = keyof typeof PATHS;

/** One drawing, by its name. */
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
