// The most bytes of a file that one call moves. It shrinks when calls take too long. Transfers over one link share it.

// Smaller chunks would cost more per call than they carry.
const LEAST = 64 << 10;

export class ChunkSize {
  // No bound of ours: the server says how much it takes and gives.
  private most = Number.MAX_SAFE_INTEGER;

  get bytesMax(): number {
    return this.most;
  }

  /** A call of so many bytes took too long. False if there is no smaller size. */
  shrink(bytes: number): boolean {
    if (bytes <= LEAST) return false;
    this.most = Math.min(this.most, Math.max(Math.floor(bytes / 8), LEAST));
    return true;
  }
}
