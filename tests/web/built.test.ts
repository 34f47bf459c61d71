// The files of the pages that are in the tree are what their source builds.
import assert from "node:assert/strict";
import {readdirSync, readFileSync} from "node:fs";
import {join} from "node:path";
import test from "node:test";
import {gzipSync} from "node:zlib";

const BYTES_MAX = 40_000;

const kept = join(process.env["SHEAF_SOURCE"]!, "web/built");

function assertSame(inTheTree: string, fresh: string): void {
  assert.deepEqual(readdirSync(inTheTree).sort(), readdirSync(fresh).sort());
  for (const name of readdirSync(inTheTree)) assert.ok(readFileSync(join(inTheTree, name)).equals(readFileSync(join(fresh, name))), name);
}

test("web/built is what the source builds; `node web/build.mjs` brings it up to date", () => {
  assertSame(kept, process.env["SHEAF_WEB_BUILT"]!);
});

test("web/join/built is what the source builds; `node web/join/build.mjs`, after that of sdk/js, brings it up to date", () => {
  assertSame(join(process.env["SHEAF_SOURCE"]!, "web/join/built"), process.env["SHEAF_JOIN_BUILT"]!);
});

test("Compressed, it is 40 kB in all", () => {
  const sizes = readdirSync(kept).map((name) => gzipSync(readFileSync(join(kept, name)), {level: 9}).length);
  assert.ok(sizes.reduce((sum, size) => sum + size, 0) <= BYTES_MAX, sizes.join(" + "));
});

test("The page refers to nothing that is not there, and to nothing elsewhere", () => {
  const page = readFileSync(join(kept, "index.html"), "utf8");
  const names = [...page.matchAll(/(?:src|href)="ui\/([^"]+)"/g)].map(([, name]) => name);
  assert.deepEqual(names.sort(), readdirSync(kept).filter((name) => name !== "index.html").sort());
  assert.doesNotMatch(page, /https?:|\/\/[a-z]/);
});
