/* Pictures of a question: added by a button, by dropping and by pasting; shown before it is asked and after. */

import { useRef, useState } from 'preact/hooks';

import type { PictureView, View } from '../app/view';
import { Icon } from '../kit/icons';
import { ACCEPTED } from './picked_pictures';

/** The button that opens the file chooser; on a phone that offers the camera, too. */
export function AddPicture({ view }: { view: View }) {
  const chooser = useRef<HTMLInputElement>(null);
  return (
    <>
      <input
        ref={chooser}
        class="chooser"
        type="file"
        accept={ACCEPTED}
        multiple
        hidden
        onChange={(event) => {
          const { files } = event.currentTarget;
          if (files !== null) view.actions.addPictures([...files]);
          event.currentTarget.value = ''; // the same file may be chosen again
        }}
      />
      <button
        type="button"
        class="quiet round add-picture"
        aria-label="Add a picture"
        title="Add a picture: choose, drop or paste one"
        onClick={() => chooser.current?.click()}
      >
        <Icon name="picture" />
      </button>
    </>
  );
}

/** The pictures that the next question is asked with. */
export function PickedList({ view }: { view: View }) {
  const picked = view.picked.value;
  if (picked.length === 0) return null;
  const nameOf = ({ alt }: PictureView, at: number): string => (alt === '' ? `picture ${at + 1}` : alt);
  return (
    <ul class="picked" aria-label="Pictures of your question">
      {picked.map((picture, at) => (
        <li key={picture.id}>
          <img src={picture.url} alt={nameOf(picture, at)} />
          <input
            type="text"
            value={picture.alt}
            maxLength={200}
            aria-label={`What picture ${at + 1} shows, for who cannot see it`}
            placeholder="What it shows"
            onInput={(event) => view.actions.describePicture(picture.id, event.currentTarget.value)}
          />
          <button
            type="button"
            class="quiet round"
            aria-label={`Remove ${nameOf(picture, at)}`}
            title="Remove"
            onClick={() => {
              view.actions.removePicture(picture.id);
              document.getElementById('question')?.focus();
            }}
          >
            <Icon name="close" />
          </button>
        </li>
      ))}
    </ul>
  );
}

/** The pictures of a question that was asked; of those that are not here, the description. */
export function AskedPictures({ pictures }: { pictures: readonly PictureView[] }) {
  if (pictures.length === 0) return null;
  return (
    <ul class="asked-with" aria-label={pictures.length === 1 ? 'Picture' : 'Pictures'}>
      {pictures.map(({ id, alt, url }) => (
        <li key={id}>
          {url === '' ? (
            <span class="not-here">
              <Icon name="picture" />
              <span>
                {alt === '' ? 'A picture' : `Picture: ${alt}`}
                <small>It is in the tab that asked with it.</small>
              </span>
            </span>
          ) : (
            <img src={url} alt={alt === '' ? 'Picture of this question' : alt} />
          )}
        </li>
      ))}
    </ul>
  );
}

const holdsFiles = (event: DragEvent): boolean => event.dataTransfer?.types.includes('Files') === true;

/** The picture files of a drop or of a clipboard. */
export function filesOf(data: DataTransfer | null): File[] {
  return [...(data?.files ?? [])];
}

/** What an element needs so that pictures can be dropped on it; `isOver`: some are held over it now. */
export function usePictureDrop(
  takes: boolean,
  drop: (files: readonly File[]) => void,
): {
  readonly isOver: boolean;
  readonly handlers: {
    readonly onDragOver: (event: DragEvent) => void;
    readonly onDragLeave: (event: DragEvent) => void;
    readonly onDrop: (event: DragEvent) => void;
  };
} {
  const [isOver, setOver] = useState(false);
  return {
    isOver: isOver && takes,
    handlers: {
      onDragOver: (event) => {
        if (!holdsFiles(event)) return;
        event.preventDefault(); // the browser would open the file in place of the page
        if (takes) setOver(true);
        else if (event.dataTransfer !== null) event.dataTransfer.dropEffect = 'none';
      },
      onDragLeave: (event) => {
        const { currentTarget: box, relatedTarget: to } = event;
        if (!(box instanceof Node && to instanceof Node && box.contains(to))) setOver(false);
      },
      onDrop: (event) => {
        if (!holdsFiles(event)) return;
        event.preventDefault();
        setOver(false);
        if (takes) drop(filesOf(event.dataTransfer));
      },
    },
  };
}
