// RangeJoiner: joins the ranges of a file that is read piece by piece, and checks the whole against its digest.
import {dataLoss} from "../errors.js";
import {Sha256} from "./sha256.js";

// A size is a claim of the server: memory beyond this is taken as the bytes come.
const RESERVE_MAX = 256 << 20;

export class RangeJoiner {
  private bytes = new Uint8Array(0);
  private used = 0;
  private readonly hash = new Sha256();
  // Unknown at first.
  private size = -1;

  /** Where the next range begins. */
  get offset(): number {
    return this.used;
  }

  get complete(): boolean {
    return this.used === this.size;
  }

  /** `size` is that of the whole file. DATA_LOSS if it changed, or the range is empty or goes beyond it. */
  add(range: Uint8Array, size: number): void {
    if (this.size < 0 && size >= 0) {
      this.size = size;
      this.bytes = new Uint8Array(Math.min(size, RESERVE_MAX));
    }
    if (size !== this.size) throw dataLoss(`the file has ${size} bytes now and had ${this.size} before`);
    if (range.length > this.size - this.used) {
      throw dataLoss(`${range.length} bytes arrived from offset ${this.used} of a file of ${this.size}`);
    }
    if (range.length === 0 && !this.complete) {
      throw dataLoss(`nothing arrived from offset ${this.used} of a file of ${this.size} bytes`);
    }
    if (this.used + range.length > this.bytes.length) {
      const wider = new Uint8Array(Math.min(this.size, Math.max(2 * this.bytes.length, this.used + range.length)));
      wider.set(this.bytes.subarray(0, this.used));
      this.bytes = wider;
    }
    this.bytes.set(range, this.used);
    this.used += range.length;
    this.hash.update(range);
  }

  /** The whole file. DATA_LOSS if its bytes have another digest. Once, when complete. */
  take(digest: string): Uint8Array {
    const actual = this.hash.hex();
    if (actual !== digest) {
      throw dataLoss(`the bytes that arrived have the digest ${actual} and should have ${digest}; read again`);
    }
    return this.bytes;
  }
}
