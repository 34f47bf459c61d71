// The packages of `apt-cache dumpavail`, by maintainer, as numbers that are the same on every machine with the same lists.

/** {maintainers: the packages of each, numWords}. A package is {words, tags}, both numbers, in order. */
export function readPackages(text, numTags) {
  const byName = new Map();
  for (const stanza of text.split("\n\n")) {
    const fields = fieldsOf(stanza);
    if (fields.Tag && !byName.has(fields.Package)) byName.set(fields.Package, fields);
  }
  const counts = new Map();
  const allWords = new Set();
  for (const fields of byName.values()) {
    for (const tag of tagsOf(fields)) counts.set(tag, (counts.get(tag) ?? 0) + 1);
    for (const word of wordsOf(fields)) allWords.add(word);
  }
  const frequent = [...counts].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1)).slice(0, numTags).map(([tag]) => tag);
  const tagNumbers = new Map(frequent.map((tag, i) => [tag, i]));
  const wordNumbers = new Map([...allWords].sort().map((word, i) => [word, i]));
  const byMaintainer = new Map();
  for (const name of [...byName.keys()].sort()) {
    const fields = byName.get(name);
    const packages = byMaintainer.get(fields.Maintainer) ?? [];
    byMaintainer.set(fields.Maintainer, packages);
    packages.push({
      words: [...wordsOf(fields)].map((word) => wordNumbers.get(word)).sort((a, b) => a - b),
      tags: [...tagsOf(fields)].filter((tag) => tagNumbers.has(tag)).map((tag) => tagNumbers.get(tag)),
    });
  }
  return {maintainers: [...byMaintainer.keys()].sort().map((name) => byMaintainer.get(name)), numWords: wordNumbers.size};
}

function fieldsOf(stanza) {
  const fields = {};
  for (const [, name, value] of stanza.matchAll(/^([\w-]+):(.*(?:\n[ \t].*)*)/gm)) fields[name] = value.trim();
  return fields;
}

function tagsOf(fields) {
  return new Set(fields.Tag.split(",").map((tag) => tag.trim()).filter((tag) => tag !== ""));
}

function wordsOf(fields) {
  const description = fields.Description ?? fields["Description-en"] ?? "";
  const text = `${fields.Package} ${description.split("\n")[0]}`.toLowerCase();
  const words = new Set([...text.matchAll(/[a-z][a-z0-9+]+/g)].map(([word]) => `word ${word}`));
  for (const relation of ["Depends", "Pre-Depends", "Recommends", "Suggests"]) {
    for (const entry of (fields[relation] ?? "").split(",")) {
      const [name] = entry.trim().split(/[\s|(:[<]/);
      if (name) words.add(`needs ${name}`);
    }
  }
  return words;
}
