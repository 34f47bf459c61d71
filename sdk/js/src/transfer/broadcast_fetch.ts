// BroadcastFetch: the whole file of a broadcast, also where that is a patch of another (blob_service.proto): what it is a patch of
// is read, too, as far as nobody has it here, and they are put together. What the server sends is not trusted: no more of it is
// taken than may be, and a patch that does not fit is refused.
import type {Message} from "@bufbuild/protobuf";

import {dataLoss, SheafError} from "../errors.js";
import {Safetensors} from "../values/safetensors.js";
import {applyPatch, patchBase} from "../values/safetensors_patch.js";
import {BlobFetch} from "./blob_fetch.js";
import type {CallSequence, NextCall} from "./call_sequence.js";
import type {ChunkSize} from "./chunk_size.js";

// That lie one upon the other: a server takes no more.
const PATCHES_MAX = 32;

export interface BroadcastFetchOptions {
  /** The whole file of a broadcast that was fetched before; null if it is not at hand. It is not changed. */
  find(digest: string): Uint8Array | null;
  /** Of one file; of all that is read together twice that. */
  bytesMax: number;
  chunkSize: ChunkSize;
}

export class BroadcastFetch implements CallSequence {
  done = false;
  error: SheafError | null = null;
  /** When done without an error. */
  bytes: Uint8Array | null = null;
  /** From the server. */
  bytesReceived = 0;

  private readonly digest: string;
  private readonly options: BroadcastFetchOptions;
  private fetch: BlobFetch;
  private fetched: string;
  // The newest first: each is one of the next, and the last of them of what is fetched.
  private readonly patches: {digest: string; file: Safetensors}[] = [];

  /**
   * RESOURCE_EXHAUSTED if a file has more than `bytesMax`, or all that is read more than twice that; DATA_LOSS if a patch does not
   * fit what it is a patch of, or that is not there.
   */
  constructor(digest: string, options: BroadcastFetchOptions) {
    this.digest = digest;
    this.options = options;
    this.fetched = digest;
    this.fetch = new BlobFetch(digest, options.bytesMax, options.chunkSize);
  }

  next(): NextCall {
    return this.fetch.next();
  }

  takeLess(): boolean {
    return this.fetch.takeLess();
  }

  onDone(error: SheafError | null, response: Message | null): void {
    this.fetch.onDone(error, response);
    if (!this.fetch.done) return;
    try {
      if (this.fetch.error !== null) throw this.refused(this.fetch.error);
      this.onFetched(this.fetch.bytes!);
    } catch (refusal) {
      this.error = refusal as SheafError;
      this.done = true;
    }
  }

  private refused(error: SheafError): SheafError {
    if (this.patches.length === 0) return error;
    const code = error.code === "NOT_FOUND" ? "DATA_LOSS" : error.code;
    const {digest} = this.patches.at(-1)!;
    return new SheafError(
      code, `the broadcast ${digest} is a patch of ${this.fetched}, which could not be read: ${error.message}`, {cause: error});
  }

  private onFetched(bytes: Uint8Array): void {
    this.bytesReceived += bytes.length;
    const file = Safetensors.orNull(bytes);
    const base = file === null ? undefined : patchBase(file);
    if (base === undefined) return this.putTogether(bytes);
    if (!/^[0-9a-f]{64}$/.test(base)) {
      throw dataLoss(`the broadcast ${this.fetched} is a patch of "${base.slice(0, 128)}", which is no digest`);
    }
    this.patches.push({digest: this.fetched, file: file!});
    if (this.patches.length > PATCHES_MAX) {
      throw dataLoss(`the broadcast ${this.digest} is more than ${PATCHES_MAX} patches, one upon the other`);
    }
    this.fetched = base;
    // Others may be using it.
    const known = this.options.find(base)?.slice();
    if (known !== undefined) return this.putTogether(known);
    // Programs send patches up to the bytes of what they lie upon.
    const {bytesMax, chunkSize} = this.options;
    this.fetch = new BlobFetch(base, bytesMax - Math.max(this.bytesReceived - bytesMax, 0), chunkSize);
  }

  /** Puts the patches upon the whole file. */
  private putTogether(whole: Uint8Array): void {
    const file = this.patches.length === 0 ? null : Safetensors.orNull(whole);
    for (const {digest, file: patch} of this.patches.reverse()) {
      if (file === null) throw dataLoss(`the broadcast ${digest} is a patch of ${this.fetched}, which is not a safetensors file`);
      try {
        applyPatch(file, patch);
      } catch (error) {
        throw dataLoss(`the broadcast ${digest} does not fit what it is a patch of: ${(error as Error).message}`);
      }
    }
    this.bytes = whole;
    this.done = true;
  }
}
