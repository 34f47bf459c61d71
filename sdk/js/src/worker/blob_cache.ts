// BlobCache: the broadcasts a worker saw lately, by digest, so that the tasks of one round fetch them once.
//
// Holds at most `bytesMax` in memory; the one not used for longest goes first. Content has the digest it is filed under, or is
// the file that the patch of this digest stands for: whoever inserts has checked.

export class BlobCache {
  private readonly bytesMax: number;
  private bytes = 0;
  // The one not used for longest first.
  private readonly entries = new Map<string, Uint8Array>();

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax;
  }

  find(digest: string): Uint8Array | null {
    const found = this.entries.get(digest);
    if (found === undefined) return null;
    this.entries.delete(digest);
    this.entries.set(digest, found);
    return found;
  }

  /** A blob larger than the whole cache is not kept. */
  insert(digest: string, bytes: Uint8Array): void {
    if (bytes.length > this.bytesMax || this.entries.has(digest)) return;
    for (const [oldest, dropped] of this.entries) {
      if (this.bytes + bytes.length <= this.bytesMax) break;
      this.entries.delete(oldest);
      this.bytes -= dropped.length;
    }
    this.entries.set(digest, bytes);
    this.bytes += bytes.length;
  }
}
