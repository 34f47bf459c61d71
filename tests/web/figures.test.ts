// What the dashboard takes: the time until it is there, its bytes, and how long a list may be. Run alone.
import assert from "node:assert/strict";
import test, {after, before} from "node:test";

import type {Browser} from "playwright-core";

import {Sheafd} from "../sdk/js/sheafd.js";
import {call, createRound, finish, launch, openPage, problemsOf, requestId, skip} from "./dashboard.js";

let sheafd: Sheafd;
let browser: Browser;

before(async () => {
  if (skip !== false) return;
  sheafd = await Sheafd.start("--store", "memory");
  for (let i = 0; i < 30; ++i) await createRound(sheafd.http, {job: "paint"});
  browser = await launch();
});

after(async () => {
  if (skip !== false) return;
  await browser.close();
  await sheafd.close();
});

test("The page is there within 300 ms, and is 40 kB in all", {skip}, async () => {
  const page = await openPage(browser, sheafd.http, "");
  await page.getByText("All live rounds").waitFor();
  const paths = [...new Set(await page.evaluate("performance.getEntriesByType('resource').map((entry) => new URL(entry.name).pathname)") as string[])]
    .filter((path) => path.startsWith("/ui/"));
  let bytes = 0;
  for (const path of ["/", ...paths]) {
    const answer = await fetch(`http://${sheafd.http}${path}`, {method: "HEAD", headers: {"accept-encoding": "gzip"}});
    assert.equal(answer.headers.get("content-encoding"), "gzip");
    bytes += Number(answer.headers.get("content-length"));
  }
  const paints: number[] = [];
  for (let i = 0; i < 9; ++i) {
    const fresh = await openPage(browser, sheafd.http, "");
    await fresh.getByText("All live rounds").waitFor();
    paints.push(await fresh.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") as number);
    await finish(fresh);
  }
  const median = paints.sort((a, b) => a - b)[4]!;
  console.log(`first paint ${median.toFixed(0)} ms (${paints[0]!.toFixed(0)} to ${paints[8]!.toFixed(0)}), ${paths.length + 1} files of ${bytes} bytes`);
  assert.ok(paths.length >= 2);
  assert.ok(bytes <= 40_000, `${bytes} bytes`);
  assert.ok(median <= 300, `${median} ms`);
  assert.deepEqual(problemsOf(page), []);
});

test("Ten thousand rounds scroll, with some dozens of rows in the page", {skip}, async () => {
  const ALL = 10_000;
  const other = await Sheafd.start("--store", "memory", "--ended-rounds-max", String(2 * ALL));
  after(() => other.close());
  let made = 0;
  const first = await createRound(other.http, {job: "many"});
  await call(other.http, "RoundService/CancelRound", {requestId: requestId(), round: first, reason: "the first"});
  await Promise.all(Array.from({length: 16}, async () => {
    while (++made < ALL) {
      const id = await createRound(other.http, {job: "many"});
      await call(other.http, "RoundService/CancelRound", {requestId: requestId(), round: id, reason: "one of many"});
    }
  }));
  const page = await openPage(browser, other.http, "rounds");
  const rows = page.getByRole("table", {name: "Rounds, newest first"}).getByRole("row");
  await rows.nth(5).waitFor();
  const begin = Date.now();
  while (await page.getByText(first).count() === 0) {
    assert.ok(Date.now() - begin < 60_000, "the end is reached");
    await page.evaluate("scrollTo(0, document.documentElement.scrollHeight)");
    await page.waitForTimeout(20);
    assert.ok(await rows.count() < 120);
  }
  assert.match(await page.getByRole("status").allInnerTexts().then((texts) => texts.join(" ")), /10,000 rounds/);
  // Up again in steps of a screen: how long a frame takes.
  const slowest = await page.evaluate(`(async () => {
    let slowest = 0;
    for (let i = 0; i < 100; ++i) {
      const begin = performance.now();
      scrollBy(0, -3100);
      await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
      slowest = Math.max(slowest, performance.now() - begin);
    }
    return slowest;
  })()`) as number;
  console.log(`the end after ${Date.now() - begin} ms; the slowest of 100 jumps took ${slowest.toFixed(0)} ms`);
  assert.ok(slowest < 250, `${slowest} ms`);
  await finish(page);
});
