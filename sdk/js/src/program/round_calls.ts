// What is asked of a server about rounds: the calls behind `Server`, `Round` and loops.
import {BlobService, StartUploadResponse_Verdict as Verdict} from "../../gen/sheaf/v1/blob_service_pb.js";
import {type Round as RoundMessage, RoundState} from "../../gen/sheaf/v1/round_pb.js";
import {RoundService} from "../../gen/sheaf/v1/round_service_pb.js";
import {type Code, dataLoss, invalidArgument, SheafError} from "../errors.js";
import {sha256Hex} from "../transfer/sha256.js";
import {UploadSession} from "../transfer/upload_session.js";
import {encodeSafetensors} from "../values/safetensors.js";
import {Sparse} from "../values/sparse.js";
import {Tensor, toTensor} from "../values/tensor.js";
import type {Caller} from "./caller.js";
import {type Broadcast, type RoundOptions, roundSpec} from "./round_spec.js";

/** What travels along with another call, instead of in calls of its own: a server's inline_bytes_max. */
export const INLINE_BYTES_MAX = 1 << 20;

/** Uploads the broadcast and creates the round. */
export function createRound(caller: Caller, computation: string, options: RoundOptions, population: string): Promise<RoundMessage> {
  const spec = roundSpec(computation, options, population);
  const requestId = caller.newRequestId();
  // A server of 0.1 looks for a small broadcast among the uploads; another may take less at a time.
  return withBroadcast(caller, options.broadcast, ["NOT_FOUND", "RESOURCE_EXHAUSTED"], async (broadcast, digest) => {
    spec.broadcastDigest = digest;
    return roundOf(await caller.call(RoundService.method.createRound, {requestId, spec, broadcast}));
  });
}

/** Creates the round without its broadcast, which `openRound` brings. */
export async function announceRound(
  caller: Caller, computation: string, options: RoundOptions, population: string,
): Promise<RoundMessage> {
  if (options.broadcast !== undefined) {
    throw invalidArgument("the broadcast of an announced round comes when it is opened: round.open(broadcast)");
  }
  const spec = roundSpec(computation, options, population);
  spec.announced = true;
  const announced = roundOf(await caller.call(RoundService.method.createRound, {requestId: caller.newRequestId(), spec}));
  if (announced.state === RoundState.COLLECTING) {
    // A server of 0.1 does not know the field, and has opened it without a broadcast.
    await cancelRound(caller, announced.id, "its program announced it, which the server does not know");
    throw new SheafError("UNIMPLEMENTED", "the server is older than announced rounds; update it, or announce none (ahead: 0)");
  }
  return announced;
}

/** Brings the broadcast of an announced round. */
export function openRound(caller: Caller, round: string, broadcast: Broadcast | undefined): Promise<RoundMessage> {
  const requestId = caller.newRequestId();
  return withBroadcast(caller, broadcast, ["RESOURCE_EXHAUSTED"], async (broadcast, broadcastDigest) => (
    roundOf(await caller.call(RoundService.method.openRound, {requestId, round, broadcast, broadcastDigest}))));
}

/** Ends the round without an aggregate. */
export async function cancelRound(caller: Caller, round: string, reason: string, millis?: number): Promise<RoundMessage> {
  const requestId = caller.newRequestId();
  return roundOf(await caller.call(RoundService.method.cancelRound, {requestId, round, reason}, millis));
}

/** Uploads what the server has not; the digest. */
export async function uploadBroadcast(caller: Caller, content: Exclude<Broadcast, string>): Promise<string> {
  const upload = new UploadSession({bytes: bytesOfBroadcast(content), requestId: caller.newRequestId()});
  await caller.drive(upload);
  if (upload.verdict !== Verdict.SEND && upload.verdict !== Verdict.ALREADY_STORED) {
    throw new SheafError("INTERNAL", `the server answered ${BlobService.method.startUpload.name} with ${upload.verdict}`);
  }
  return upload.digest;
}

export function roundOf({round}: {round?: RoundMessage | undefined}): RoundMessage {
  if (round === undefined) throw dataLoss("the server's answer has no round");
  return round;
}

/** The call, with the broadcast in it if that is small; else, and after an error of `wantsUpload`, it is uploaded before. */
async function withBroadcast<T>(
  caller: Caller, broadcast: Broadcast | undefined, wantsUpload: readonly Code[],
  call: (bytes: Uint8Array, digest: string) => Promise<T>,
): Promise<T> {
  const none = new Uint8Array();
  if (broadcast === undefined) return call(none, "");
  if (typeof broadcast === "string") return call(none, broadcast);
  const bytes = bytesOfBroadcast(broadcast);
  if (bytes.length > 0 && bytes.length <= INLINE_BYTES_MAX) {
    try {
      return await call(bytes, sha256Hex(bytes));
    } catch (error) {
      if (!(error instanceof SheafError && wantsUpload.includes(error.code))) throw error;
    }
  }
  return call(none, await uploadBroadcast(caller, bytes));
}

function bytesOfBroadcast(content: Exclude<Broadcast, string>): Uint8Array {
  if (content instanceof Uint8Array) return content;
  const tensors: Record<string, Tensor> = {};
  for (const [name, value] of Object.entries(content)) {
    if (value instanceof Sparse) {
      tensors[`${name}.indices`] = value.indices;
      tensors[`${name}.values`] = value.values;
      tensors[`${name}.dense_shape`] = new Tensor(BigInt64Array.from(value.shape, BigInt));
    } else {
      tensors[name] = toTensor(value, `"${name}" of the broadcast`);
    }
  }
  return encodeSafetensors(tensors);
}
