// The pictures of the README: the round page of a real run, light and dark.
//
//   SHEAF_PICTURES=docs/pictures ctest -R web_pictures    # Makes them anew, with this machine's package index.
import assert from "node:assert/strict";
import {mkdirSync, readFileSync, writeFileSync} from "node:fs";
import {join} from "node:path";
import test from "node:test";

import {Sheafd} from "../sdk/js/sheafd.js";
import {call, launch, openPage, SCHEMES, skip, temporaryFolder, trainedStore} from "./dashboard.js";

const BYTES_MAX = 150_000;
const VIEW = {width: 1240, height: 850};

const source = process.env["SHEAF_SOURCE"]!;
const wanted = process.env["SHEAF_PICTURES"];

/** Width and height of a PNG. */
function sizeOf(png: Buffer): [number, number] {
  assert.equal(png.toString("latin1", 1, 4), "PNG");
  return [png.readUInt32BE(16), png.readUInt32BE(20)];
}

test("The round page of a real run makes the README's pictures, and those that are there look like them", {skip}, async (context) => {
  const folder = temporaryFolder();
  context.after(() => folder.remove());
  const store = wanted === undefined ? await trainedStore(folder.path, 3) : await trainedStore(folder.path, 20, {clients: 120});
  const sheafd = await Sheafd.start("--data-dir", store);
  context.after(() => sheafd.close());
  const {rounds: [round]} = await call(sheafd.http, "RoundService/ListRounds", {});
  const browser = await launch();
  context.after(() => browser.close());
  for (const scheme of SCHEMES) {
    const page = await openPage(browser, sheafd.http, `rounds/${round.id}`, {scheme});
    await page.setViewportSize(VIEW);
    await page.getByText("different ones").waitFor();
    await page.getByRole("region", {name: "Metrics, means over clients"}).getByText("loss").waitFor();
    await page.getByRole("region", {name: "Tasks"}).getByText("succeeded").waitFor();
    const made = await page.screenshot({animations: "disabled"});
    const path = join(source, "docs/pictures", `round-${scheme}.png`);
    if (wanted !== undefined) {
      mkdirSync(join(source, wanted), {recursive: true});
      writeFileSync(join(source, wanted, `round-${scheme}.png`), made);
    }
    assert.deepEqual(sizeOf(readFileSync(path)), sizeOf(made));
    assert.ok(readFileSync(path).length < BYTES_MAX);
    await page.context().close();
  }
  assert.match(readFileSync(join(source, "README.md"), "utf8"), /<picture>[^]*docs\/pictures\/round-dark\.png[^]*docs\/pictures\/round-light\.png[^]*<\/picture>/);
});
