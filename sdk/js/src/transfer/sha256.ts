// SHA-256 in one step. crypto.subtle is asynchronous, and missing on pages that came over plain HTTP.
import {sha256} from "@noble/hashes/sha2.js";

/** In lower-case hex. */
export function sha256Hex(bytes: Uint8Array): string {
  return toHex(sha256(bytes));
}

export function toHex(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += byte.toString(16).padStart(2, "0");
  return text;
}

/** SHA-256 of bytes that come in pieces. */
export class Sha256 {
  private readonly hash = sha256.create();

  update(bytes: Uint8Array): void {
    this.hash.update(bytes);
  }

  hex(): string {
    return toHex(this.hash.digest());
  }
}
