/* A blob of a store by its hash, and the pieces that it travels in. */

export const PIECE_BYTES = 4 << 20; // blobs are hashed in pieces of this size
export const MAX_BLOB_BYTES = 64 * 2 ** 30;

export interface BlobRef {
  readonly sha256: string;
  readonly bytes: number;
  readonly pieces: readonly string[]; // SHA-256 of each piece; the last one may be shorter
}

/** Bytes of piece `index` of a blob. */
export function pieceBytes(ref: BlobRef, index: number): number {
  return Math.min(PIECE_BYTES, ref.bytes - index * PIECE_BYTES);
}
