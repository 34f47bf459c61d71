// Package lists as `apt-cache dumpavail` prints them, made up: small, and the same everywhere.

export const TOPICS = 12;
export const MAINTAINERS = 60;
/** Of each maintainer. */
export const PACKAGES = 6;

/** Packages whose tag is the topic that their words speak of; each has a word of its own. */
export function madeUpPackages(): string {
  const stanzas = [];
  for (let maintainer = 0; maintainer < MAINTAINERS; ++maintainer) {
    for (let i = 0; i < PACKAGES; ++i) {
      const topic = (maintainer * 7 + i * 5) % TOPICS;
      const name = String.fromCharCode(97 + maintainer % 26, 97 + Math.floor(maintainer / 26), 97 + i % 26, 97 + Math.floor(i / 26));
      stanzas.push(`Package: own${name}\nMaintainer: M${maintainer}\nTag: topic::${topic}\n` +
        `Description: about ${"abcdefghijkl"[topic]}x and ${"abcdefghijkl"[topic]}y\nDepends: lib${topic} (>= 1), libc6`);
    }
  }
  return stanzas.join("\n\n");
}
