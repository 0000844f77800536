/* The worker in which long files of conversations are read, so that the page stays free. Edge. */

import { type Brought, broughtOf } from './export';

const port = self as unknown as {
  postMessage(message: Brought | string): void;
  onmessage: ((event: MessageEvent<Blob>) => void) | null;
};

port.onmessage = ({ data }) => {
  void data.text().then(
    (text) => port.postMessage(broughtOf(text)),
    () => port.postMessage('This file cannot be read.'),
  );
};
