// BlobFetch: reads a whole blob by ranges and checks its digest. Of a patch that is its own bytes (see BroadcastFetch).
import {create, type Message} from "@bufbuild/protobuf";

import {BlobService, ReadBlobRequestSchema, type ReadBlobResponse} from "../../gen/sheaf/v1/blob_service_pb.js";
import {SheafError} from "../errors.js";
import type {CallSequence, NextCall} from "./call_sequence.js";
import type {ChunkSize} from "./chunk_size.js";
import {RangeJoiner} from "./range_joiner.js";

// What a server gives that is not asked for less: its chunk_bytes_max, unless it was built otherwise.
const CHUNK_BYTES = 2 << 20;

export class BlobFetch implements CallSequence {
  done = false;
  error: SheafError | null = null;
  /** When done without an error. */
  bytes: Uint8Array | null = null;

  private readonly digest: string;
  private readonly bytesMax: number;
  private readonly chunkSize: ChunkSize;
  // Of the newest call; 0: as much as the server gives.
  private askedBytes = 0;
  private readonly file = new RangeJoiner();

  /** RESOURCE_EXHAUSTED, before more than a piece has arrived, if the blob is larger than `bytesMax`. */
  constructor(digest: string, bytesMax: number, chunkSize: ChunkSize) {
    this.digest = digest;
    this.bytesMax = bytesMax;
    this.chunkSize = chunkSize;
  }

  next(): NextCall {
    this.askedBytes = this.chunkSize.bytesMax < CHUNK_BYTES ? this.chunkSize.bytesMax : 0;
    const request = create(ReadBlobRequestSchema, {
      digest: this.digest, offset: BigInt(this.file.offset), length: BigInt(this.askedBytes),
      takesPatches: true,
    });
    return {method: BlobService.method.readBlob, request};
  }

  takeLess(): boolean {
    return this.chunkSize.shrink(this.askedBytes > 0 ? this.askedBytes : CHUNK_BYTES);
  }

  onDone(error: SheafError | null, response: Message | null): void {
    try {
      if (error !== null) throw error;
      const {data, sizeBytes} = response as ReadBlobResponse;
      if (sizeBytes > BigInt(this.bytesMax)) {
        throw new SheafError("RESOURCE_EXHAUSTED", `the broadcast ${this.digest} has ${sizeBytes} bytes, and no more than ` +
          `${this.bytesMax} are taken here`);
      }
      this.file.add(data, Number(sizeBytes));
      if (!this.file.complete) return;
      this.bytes = this.file.take(this.digest);
    } catch (refusal) {
      this.error = refusal as SheafError;
    }
    this.done = true;
  }
}
