// BroadcastPatches: what a loop has sent last, so that it sends of the next broadcast only what is different.
//
//   const patch = patches.patchFor(file);
//   if (patch === null) patches.noteWhole(file, await upload(file), takesPatches);
//   else patches.notePatch(patch);                                                          // Once it is sent.
//
// Patches lie upon one whole broadcast until they are many, or have as many bytes as that: workers that come new read them all.
import {sha256Hex} from "../transfer/sha256.js";
import {Safetensors} from "../values/safetensors.js";
import {encodePatch} from "../values/safetensors_patch.js";

// Upon one whole broadcast: as many as servers take.
const PATCHES_MAX = 32;

interface Sent {
  file: Safetensors;
  digest: string;
}

/** What stands for a broadcast. */
export interface BroadcastPatch extends Sent {
  /** Empty: nothing differs from what was sent last, whose digest this is. */
  readonly bytes: Uint8Array;
}

export class BroadcastPatches {
  // Null if no patch of it may be sent.
  private last: Sent | null = null;
  private wholeBytes = 0;
  // Upon the whole, together.
  private patchBytes = 0;
  private numPatches = 0;

  /** Null if the whole is to be sent. `file` is kept if the patch is. */
  patchFor(file: Uint8Array): BroadcastPatch | null {
    if (this.last === null) return null;
    const tensors = Safetensors.orNull(file);
    if (tensors === null) return null;
    const bytes = encodePatch(this.last.file, tensors, this.last.digest);
    if (bytes === null) return null;
    if (bytes.length === 0) return {...this.last, bytes};
    if (this.numPatches >= PATCHES_MAX || this.patchBytes + bytes.length > this.wholeBytes) return null;
    return {file: tensors, digest: sha256Hex(bytes), bytes};
  }

  notePatch({file, digest, bytes}: BroadcastPatch): void {
    if (bytes.length === 0) return;
    this.last = {file, digest};
    this.patchBytes += bytes.length;
    ++this.numPatches;
  }

  /** `file`, which is kept and does not change, was sent whole. */
  noteWhole(file: Uint8Array, digest: string, takesPatches: boolean): void {
    const tensors = takesPatches ? Safetensors.orNull(file) : null;
    this.last = tensors === null ? null : {file: tensors, digest};
    this.wholeBytes = file.length;
    this.patchBytes = 0;
    this.numPatches = 0;
  }
}
