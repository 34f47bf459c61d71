// ByteWriter: little-endian numbers, one after the other.

const CRC_TABLE = Uint32Array.from({length: 256}, (_, i) => {
  let crc = i;
  for (let bit = 0; bit < 8; ++bit) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  return crc;
});

export class ByteWriter {
  private buffer = new Uint8Array(256);
  private view = new DataView(this.buffer.buffer);
  private size = 0;

  u8(value: number): void {
    const at = this.room(1);
    this.view.setUint8(at, value);
  }
  u16(value: number): void {
    const at = this.room(2);
    this.view.setUint16(at, value, true);
  }
  i16(value: number): void {
    const at = this.room(2);
    this.view.setInt16(at, value, true);
  }
  u32(value: number): void {
    const at = this.room(4);
    this.view.setUint32(at, value, true);
  }
  i32(value: number): void {
    const at = this.room(4);
    this.view.setInt32(at, value, true);
  }
  i64(value: bigint): void {
    const at = this.room(8);
    this.view.setBigInt64(at, value, true);
  }
  f32(value: number): void {
    const at = this.room(4);
    this.view.setFloat32(at, value, true);
  }
  f64(value: number): void {
    const at = this.room(8);
    this.view.setFloat64(at, value, true);
  }
  bytes(value: Uint8Array): void {
    const at = this.room(value.length);
    this.buffer.set(value, at);
  }
  /** Its length as i64, then its bytes. */
  string(value: Uint8Array): void {
    this.i64(BigInt(value.length));
    this.bytes(value);
  }

  /** CRC-32 of all that was written (that of zlib, gzip and PNG). */
  crc32(): number {
    let crc = 0xffffffff;
    for (let i = 0; i < this.size; ++i) crc = CRC_TABLE[(crc ^ this.buffer[i]!) & 0xff]! ^ (crc >>> 8);
    return (crc ^ 0xffffffff) >>> 0;
  }

  take(): Uint8Array {
    return this.buffer.slice(0, this.size);
  }

  private room(bytes: number): number {
    const at = this.size;
    this.size += bytes;
    if (this.size > this.buffer.length) {
      const wider = new Uint8Array(Math.max(2 * this.buffer.length, this.size));
      wider.set(this.buffer.subarray(0, at));
      this.buffer = wider;
      this.view = new DataView(wider.buffer);
    }
    return at;
  }
}
