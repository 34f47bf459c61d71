// UploadSession: start, chunks, finish. After UNAVAILABLE or a gap it asks what was committed and goes on from there. If the
// upload vanished or arrived damaged, it starts again. It gives up after a few such turns without progress; bytes that the
// server had lost and takes again are no progress.
import {create, type Message} from "@bufbuild/protobuf";

import {
  BlobService, FinishUploadRequestSchema, QueryUploadRequestSchema, type QueryUploadResponse, StartUploadRequestSchema,
  type StartUploadResponse, StartUploadResponse_Verdict as Verdict, WriteChunkRequestSchema, type WriteChunkResponse,
} from "../../gen/sheaf/v1/blob_service_pb.js";
import {SheafError} from "../errors.js";
import type {CallSequence, NextCall} from "./call_sequence.js";
import {ChunkSize} from "./chunk_size.js";
import {sha256Hex} from "./sha256.js";

// An upload that vanished or arrived damaged is begun again this often.
const RESTARTS_MAX = 3;
// Calls in a row that failed without a byte of progress.
const IDLE_TURNS_MAX = 5;
// A server that ends without warning loses what was not durable yet; one that loses it again and again takes nothing.
const SETBACKS_MAX = 16;
// Chunks are as large as the server allows, up to this.
const CHUNK_BYTES_MAX = 1 << 20;

export interface UploadParams {
  bytes: Uint8Array;
  /** Idempotency key, 1 to 60 characters. */
  requestId: string;
  /** The bytes are a serialised Contribution for this task, computed under this lease. */
  contribution?: {task: string; leaseToken: string};
  /** Of a broadcast: the population of the rounds that will have it. Left out: anywhere. */
  population?: string;
  chunkSize?: ChunkSize;
}

export class UploadSession implements CallSequence {
  readonly digest: string;
  /**
   * What the server said to the last StartUpload. ALREADY_STORED, NOT_NEEDED and LEASE_LOST end the session without an error
   * and no byte sent; SEND and no error mean that everything arrived.
   */
  verdict: Verdict = Verdict.VERDICT_UNSPECIFIED;
  uploadId = "";
  /** The server takes broadcasts that are patches of this one. */
  takesPatches = false;
  error: SheafError | null = null;

  private readonly params: UploadParams;
  private readonly chunkSize: ChunkSize;
  private phase: "start" | "write" | "query" | "finish" | "done" = "start";
  private committed = 0;
  // The most that was ever committed, and how often the server has had less since.
  private mostCommitted = 0;
  private setbacks = 0;
  private chunkBytes = 0;
  // Of the newest chunk.
  private sentBytes = 0;
  private restarts = 0;
  private turnsWithoutProgress = 0;

  constructor(params: UploadParams) {
    this.params = params;
    this.chunkSize = params.chunkSize ?? new ChunkSize();
    this.digest = sha256Hex(params.bytes);
  }

  get done(): boolean {
    return this.phase === "done";
  }

  next(): NextCall {
    switch (this.phase) {
      case "write": {
        const end = this.committed + Math.min(this.chunkBytes, this.chunkSize.bytesMax);
        const data = this.params.bytes.subarray(this.committed, end);
        this.sentBytes = data.length;
        return {
          method: BlobService.method.writeChunk,
          request: create(WriteChunkRequestSchema, {uploadId: this.uploadId, offset: BigInt(this.committed), data}),
        };
      }
      case "query":
        return {
          method: BlobService.method.queryUpload,
          request: create(QueryUploadRequestSchema, {uploadId: this.uploadId}),
        };
      case "finish":
        return {
          method: BlobService.method.finishUpload,
          request: create(FinishUploadRequestSchema, {uploadId: this.uploadId}),
        };
      default:
        return {
          method: BlobService.method.startUpload,
          request: create(StartUploadRequestSchema, {
            // A new beginning is a new request: the old id would get the upload that is gone.
            requestId: this.restarts === 0 ? this.params.requestId : `${this.params.requestId}-${this.restarts}`,
            sizeBytes: BigInt(this.params.bytes.length),
            digest: this.digest,
            contribution: this.params.contribution,
            population: this.params.population,
          }),
        };
    }
  }

  takeLess(): boolean {
    return this.phase === "write" && this.chunkSize.shrink(this.sentBytes);
  }

  onDone(error: SheafError | null, response: Message | null): void {
    if (error !== null) return this.recover(error);
    switch (this.phase) {
      case "start":
        return this.onStarted(response as StartUploadResponse);
      case "write":
      case "query":
        return this.onCommitted(Number((response as WriteChunkResponse | QueryUploadResponse).committedBytes));
      default:
        return this.end(null);
    }
  }

  private onStarted(response: StartUploadResponse): void {
    this.verdict = response.verdict;
    this.takesPatches = response.takesPatches;
    if (this.verdict !== Verdict.SEND) {
      const isKnown = [Verdict.ALREADY_STORED, Verdict.NOT_NEEDED, Verdict.LEASE_LOST].includes(this.verdict);
      return this.end(isKnown ? null : new SheafError(
        "INTERNAL", `the server answered an upload with the unknown verdict ${this.verdict}`));
    }
    this.uploadId = response.uploadId;
    this.chunkBytes = CHUNK_BYTES_MAX;
    if (response.chunkBytesMax > 0n) this.chunkBytes = Math.min(this.chunkBytes, Number(response.chunkBytesMax));
    this.committed = 0;
    this.phase = "query";
    this.onCommitted(Number(response.committedBytes));
  }

  private onCommitted(committed: number): void {
    const size = this.params.bytes.length;
    if (committed < 0 || committed > size) {
      return this.end(new SheafError("INTERNAL", `the server has ${committed} bytes of an upload of ${size}`));
    }
    if (committed > this.mostCommitted) {
      this.mostCommitted = committed;
      this.setbacks = 0;
    }
    if (committed < this.committed && ++this.setbacks > SETBACKS_MAX) {
      return this.end(new SheafError(
        "INTERNAL", `the server loses the bytes of an upload again and again: it has ${committed} of ${size}`));
    }
    if (committed > this.committed) {
      this.turnsWithoutProgress = 0;
    } else if (this.phase === "write" && ++this.turnsWithoutProgress > IDLE_TURNS_MAX) {
      return this.end(new SheafError(
        "INTERNAL", `the server takes no more bytes of an upload at ${committed} of ${size}`));
    }
    this.committed = committed;
    this.phase = committed === size ? "finish" : "write";
  }

  private recover(error: SheafError): void {
    if (++this.turnsWithoutProgress > IDLE_TURNS_MAX) return this.end(error);
    if (error.code === "DEADLINE_EXCEEDED") this.takeLess();
    const isGone = error.code === "NOT_FOUND" && this.phase !== "start";
    const isDamaged = error.code === "DATA_LOSS" && this.phase === "finish";
    const hasGap = (error.code === "OUT_OF_RANGE" && this.phase === "write")
      || (error.code === "FAILED_PRECONDITION" && this.phase === "finish");
    const isTransient = error.code === "UNAVAILABLE" || error.code === "DEADLINE_EXCEEDED";
    if (isGone || isDamaged) {
      if (++this.restarts > RESTARTS_MAX) return this.end(error);
      this.phase = "start";
    } else if (hasGap || isTransient) {
      if (this.phase !== "start") this.phase = "query";
    } else {
      this.end(error);
    }
  }

  private end(error: SheafError | null): void {
    this.error = error;
    this.phase = "done";
  }
}
