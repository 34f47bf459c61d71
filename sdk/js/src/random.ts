// Where chance comes from: names, jitter. A test seeds it; only `Worker` and `connect` take the system's.

const MASK = (1n << 64n) - 1n;
const ALPHABET = "abcdefghijklmnopqrstuvwxyz234567";

export abstract class Random {
  /** 64 uniform bits. */
  abstract bits(): bigint;

  /** Uniform in [0, 1). */
  fraction(): number {
    return Number(this.bits() >> 11n) * 2 ** -53;
  }

  /** Uniform in [low, high). */
  between(low: number, high: number): number {
    return low + (high - low) * this.fraction();
  }

  /** `length` characters of [a-z2-7]: 5 random bits each. */
  token(length: number): string {
    let token = "";
    let bits = 0n;
    for (let i = 0; i < length; ++i) {
      if (i % 12 === 0) bits = this.bits();
      token += ALPHABET[Number(bits & 31n)];
      bits >>= 5n;
    }
    return token;
  }
}

/** The same seed gives the same sequence as base/random.h: splitmix64 into xoshiro256** (Blackman and Vigna 2018). */
export class SeededRandom extends Random {
  private readonly state: [bigint, bigint, bigint, bigint] = [0n, 0n, 0n, 0n];

  constructor(seed: bigint | number) {
    super();
    let at = BigInt(seed) & MASK;
    for (let i = 0; i < 4; ++i) {
      at = (at + 0x9e3779b97f4a7c15n) & MASK;
      let z = at;
      z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
      z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK;
      this.state[i] = z ^ (z >> 31n);
    }
  }

  bits(): bigint {
    const rotl = (x: bigint, k: bigint): bigint => ((x << k) | (x >> (64n - k))) & MASK;
    const s = this.state;
    const result = (rotl((s[1] * 5n) & MASK, 7n) * 9n) & MASK;
    const t = (s[1] << 17n) & MASK;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45n);
    return result;
  }
}

// Node 18 has it in a module only. Its name is no literal, so that nothing that packs a page looks for it.
const NODE_CRYPTO = "node:crypto";
const webCrypto: Crypto = globalThis.crypto ?? (await import(/* @vite-ignore */ /* webpackIgnore: true */ NODE_CRYPTO)).webcrypto;

/** The system's generator: fit for secrets. */
export class SystemRandom extends Random {
  bits(): bigint {
    return webCrypto.getRandomValues(new BigUint64Array(1))[0]!;
  }
}
