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
import type {BroadcastPatches} from "./broadcast_patches.js";
import type {Caller} from "./caller.js";
import {type Broadcast, type RoundOptions, roundSpec} from "./round_spec.js";

/** What travels along with another call, instead of in calls of its own: a server's inline_bytes_max. */
export const INLINE_BYTES_MAX = 1 << 20;
// What a server says of a patch that it does not take, or whose base it does not have any more. Of all else that is wrong with a
// call it says the same when the whole broadcast was sent.
const PATCH_REFUSED: readonly Code[] = ["INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "NOT_FOUND"];

/** Uploads the broadcast, or with `patches` what of it is different, and creates the round. */
export function createRound(
  caller: Caller, computation: string, options: RoundOptions, population: string, patches?: BroadcastPatches,
): Promise<RoundMessage> {
  const spec = roundSpec(computation, options, population);
  const requestId = caller.newRequestId();
  // A server of 0.1 looks for a small broadcast among the uploads; another may take less at a time.
  const sending: Sending = {caller, population: spec.population, wantsUpload: ["NOT_FOUND", "RESOURCE_EXHAUSTED"], patches};
  return withBroadcast(sending, options.broadcast, async (broadcast, digest) => {
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

/** Brings the broadcast of an announced round, or with `patches` what of it is different. */
export function openRound(
  caller: Caller, {id: round, spec}: RoundMessage, broadcast: Broadcast | undefined, patches?: BroadcastPatches,
): Promise<RoundMessage> {
  const requestId = caller.newRequestId();
  const sending: Sending = {caller, population: spec?.population ?? "", wantsUpload: ["RESOURCE_EXHAUSTED"], patches};
  return withBroadcast(sending, broadcast, async (broadcast, broadcastDigest) => (
    roundOf(await caller.call(RoundService.method.openRound, {requestId, round, broadcast, broadcastDigest}))));
}

/** Ends the round without an aggregate. */
export async function cancelRound(caller: Caller, round: string, reason: string, millis?: number): Promise<RoundMessage> {
  const requestId = caller.newRequestId();
  return roundOf(await caller.call(RoundService.method.cancelRound, {requestId, round, reason}, millis));
}

/** Uploads what the server has not, for rounds of this population; the digest. */
export async function uploadBroadcast(caller: Caller, content: Exclude<Broadcast, string>, population: string): Promise<string> {
  return (await uploaded(caller, bytesOfBroadcast(content), population)).digest;
}

export function roundOf({round}: {round?: RoundMessage | undefined}): RoundMessage {
  if (round === undefined) throw dataLoss("the server's answer has no round");
  return round;
}

async function uploaded(caller: Caller, bytes: Uint8Array, population: string): Promise<UploadSession> {
  const upload = new UploadSession({bytes, requestId: caller.newRequestId(), population});
  await caller.drive(upload);
  if (upload.verdict !== Verdict.SEND && upload.verdict !== Verdict.ALREADY_STORED) {
    throw new SheafError("INTERNAL", `the server answered ${BlobService.method.startUpload.name} with ${upload.verdict}`);
  }
  return upload;
}

interface Sending {
  caller: Caller;
  /** The round's. */
  population: string;
  /** Errors of a call with a broadcast in it after which it is uploaded instead. */
  wantsUpload: readonly Code[];
  patches?: BroadcastPatches | undefined;
}

/** A call that names a broadcast, or has it in it. */
type NamingCall<T> = (bytes: Uint8Array, digest: string) => Promise<T>;

const NONE = new Uint8Array();

async function withBroadcast<T>(sending: Sending, broadcast: Broadcast | undefined, call: NamingCall<T>): Promise<T> {
  if (broadcast === undefined) return call(NONE, "");
  if (typeof broadcast === "string") return call(NONE, broadcast);
  const bytes = bytesOfBroadcast(broadcast);
  const {caller, population, patches} = sending;
  if (patches === undefined || bytes.length <= INLINE_BYTES_MAX) return withBytes(sending, bytes, call);
  // It is kept, and the author may go on to change bytes of his own.
  const file = bytes === broadcast ? bytes.slice() : bytes;
  const patch = patches.patchFor(file);
  if (patch !== null) {
    try {
      const answer = patch.bytes.length > 0 ? await withBytes(sending, patch.bytes, call) : await call(NONE, patch.digest);
      patches.notePatch(patch);
      return answer;
    } catch (error) {
      if (!(error instanceof SheafError && PATCH_REFUSED.includes(error.code))) throw error;
    }
  }
  const {digest, takesPatches} = await uploaded(caller, file, population);
  const answer = await call(NONE, digest);
  patches.noteWhole(file, digest, takesPatches);
  return answer;
}

/** The call, with the bytes in it if they are few; else, and after an error of `wantsUpload`, they are uploaded before. */
async function withBytes<T>({caller, population, wantsUpload}: Sending, bytes: Uint8Array, call: NamingCall<T>): Promise<T> {
  if (bytes.length > 0 && bytes.length <= INLINE_BYTES_MAX) {
    try {
      return await call(bytes, sha256Hex(bytes));
    } catch (error) {
      if (!(error instanceof SheafError && wantsUpload.includes(error.code))) throw error;
    }
  }
  return call(NONE, await uploadBroadcast(caller, bytes, population));
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
