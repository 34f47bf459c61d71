// Keys are bytes. As text they are UTF-8, with what is not UTF-8 as Python has it ("surrogateescape"): the byte 0xff is the lone
// surrogate U+DCFF. Nothing is lost either way.

const decoder = new TextDecoder("utf-8", {fatal: true, ignoreBOM: true});
const encoder = new TextEncoder();
const LONE = /[\udc80-\udcff]/;

export function textOf(bytes: Uint8Array): string {
  try {
    return decoder.decode(bytes);
  } catch {
    return escaped(bytes);
  }
}

function escaped(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length;) {
    const length = lengthOfCharacter(bytes, at);
    if (length === 0) text += String.fromCharCode(0xdc00 + bytes[at++]!);
    else {
      text += decoder.decode(bytes.subarray(at, at + length));
      at += length;
    }
  }
  return text;
}

// Of the character that begins there; 0 if none does.
function lengthOfCharacter(bytes: Uint8Array, at: number): number {
  for (let length = 1; length <= 4 && at + length <= bytes.length; ++length) {
    try {
      decoder.decode(bytes.subarray(at, at + length));
      return length;
    } catch {
      // Perhaps it is longer.
    }
  }
  return 0;
}

export function bytesOf(text: string): Uint8Array {
  if (!LONE.test(text)) return encoder.encode(text);
  const bytes: number[] = [];
  for (const character of text) {
    const code = character.codePointAt(0)!;
    if (code >= 0xdc80 && code <= 0xdcff) bytes.push(code - 0xdc00);
    else bytes.push(...encoder.encode(character));
  }
  return Uint8Array.from(bytes);
}
