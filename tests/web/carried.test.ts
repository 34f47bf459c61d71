// The pages of rounds that are announced, that continue others, and whose slow tasks went on elsewhere.
import assert from "node:assert/strict";
import test, {after, before} from "node:test";

import type {Browser, Page} from "playwright-core";

import {type ComputationFunction, connect, type Round, silent, sum, Worker} from "../../sdk/js/src/index.js";
import {Sheafd, until} from "../sdk/js/sheafd.js";
import {axe, finish, launch, openPage, SCHEMES, skip, WIDTHS} from "./dashboard.js";

let sheafd: Sheafd;
let browser: Browser | undefined;
let first: Round;
let second: Round;
let third: Round;
const workers: Worker[] = [];
const running: Promise<void>[] = [];

/** A worker until the end. */
function work(name: string, concurrency: number, carry: ComputationFunction): void {
  const worker = new Worker({
    server: sheafd.http, worker: name, labels: {name}, concurrency, prepareAhead: 0, computations: {carry}, log: silent, graceMs: 100,
  });
  workers.push(worker);
  running.push(worker.run());
}

// Of the first round the two slow tasks are carried into the second. One is accepted there; the other still runs, and is carried
// into the third, which nobody opens.
before(async () => {
  if (skip !== false) return;
  sheafd = await Sheafd.start();
  const server = connect(sheafd.http);
  const spec = {outputs: {n: sum([])}, goal: 2, job: "buffered"};
  const quick = ["a", "b"].map((dataSelector) => ({dataSelector, requires: {name: "hare"}}));
  first = await server.create("carry", {...spec, tasks: ["slow-0", "slow-1", ...quick], straggler: {speculate: true, deadlineFactor: 40}});
  const ends = new Map<string, () => void>();
  work("tortoise", 2, async (task) => {
    // Who says nothing for half a minute loses its lease.
    const timer = setInterval(() => task.progress(), 1000);
    task.signal.addEventListener("abort", () => clearInterval(timer));
    await new Promise<void>((resolve) => ends.set(task.dataSelector, resolve));
    clearInterval(timer);
    return {n: 10};
  });
  await until("the slow ones run", () => ends.size === 2);
  second = await server.announce("carry", {...spec, tasks: quick, continues: first.id, staleness: {max: 3}});
  third = await server.announce("carry", {...spec, tasks: quick, continues: second.id, staleness: {max: 3}});
  work("hare", 1, () => ({n: 1}));
  await first.wait();
  ends.get("slow-0")!();
  while (second.numContributions === 0) await second.refresh();
  await (await second.open()).wait();
  assert.deepEqual([first.state, second.state, (await third.refresh()).state], ["SUCCEEDED", "SUCCEEDED", "ANNOUNCED"]);
  assert.equal(third.tasks.leased, 1);
  browser = await launch();
});

after(async () => {
  if (skip !== false) return;
  for (const worker of workers) worker.stop();
  await Promise.all(running);
  await sheafd.close();
  await browser?.close();
});

const section = (page: Page, title: string) => page.getByRole("region", {name: title, exact: true});

// Each, and a text that is there when it is complete.
const PAGES: [string, () => string, string][] = [
  ["a round whose tasks went on", () => `rounds/${first.id}?task=1`, "It goes on as"],
  ["a round that took some over", () => `rounds/${second.id}?task=2`, "through 1 round."],
  ["a round that is announced", () => `rounds/${third.id}?task=2`, "through 2 rounds."],
];

for (const [name, hash, text] of PAGES) {
  for (const width of WIDTHS) {
    for (const scheme of SCHEMES) {
      test(`${name}, ${width} px, ${scheme}: no error, nothing to stumble over`, {skip}, async () => {
        const page = await openPage(browser!, sheafd.http, hash(), {width, scheme, bypassCSP: true});
        await page.getByText(text).first().waitFor();
        await page.getByText("Loading").first().waitFor({state: "detached"});
        assert.deepEqual(await axe(page), []);
        await finish(page);
      });
    }
  }
}

test("A round that took tasks over says from where, how stale its contributions are, and where others went on", {skip}, async () => {
  const page = await openPage(browser!, sheafd.http, `rounds/${second.id}`);
  const carried = section(page, "Carried over");
  await carried.getByText("2 tasks came over").waitFor();
  assert.match(await carried.innerText(), /A task goes on through 3 rounds at the most/);
  const rows = await carried.getByRole("row").allInnerTexts();
  assert.deepEqual(rows.slice(1).map((row) => row.trim().split(/\t\s*/)), [["of its own", "1"], ["through 1 round", "1"]]);
  assert.match(await carried.innerText(), new RegExp(`1 task went on in ${third.id}: it still ran when this round was sealed`));
  await section(page, "The round").getByText("before its broadcast was known").waitFor();
  await carried.getByRole("link", {name: first.id}).click();
  await page.getByRole("heading", {name: first.id}).waitFor();
  // That one continues none, and says what is done about its stragglers.
  await carried.getByText(`2 tasks went on in ${second.id}`).waitFor();
  assert.equal(await carried.getByRole("table").count(), 0);
  await section(page, "The round").getByText("longer than 1.5 times what 75 % of the others took").waitFor();
  await section(page, "The round").getByText("longer than 40 times").waitFor();
  await finish(page);
});

test("A task says where it was carried over from and as what it goes on, and the links come to those tasks", {skip}, async () => {
  const page = await openPage(browser!, sheafd.http, `rounds/${third.id}`);
  await page.getByText("unless it is opened").waitFor();
  await section(page, "The round").getByText("its broadcast comes when it is opened").waitFor();
  await section(page, "Carried over").getByText("No contribution was accepted yet.").waitFor();
  const tasks = section(page, "Tasks");
  await tasks.getByRole("slider").focus();
  await page.keyboard.press("End");
  await tasks.getByText(`Carried over from ${first.id}/1, through 2 rounds.`).waitFor();
  await tasks.getByText("tortoise").first().waitFor();
  // It cannot run again: what it computes on is elsewhere.
  assert.equal(await tasks.getByRole("button", {name: /Requeue/}).count(), 0);
  await tasks.getByRole("link", {name: `${first.id}/1`}).click();
  await page.getByRole("heading", {name: first.id}).waitFor();
  await tasks.getByText(`It goes on as ${second.id}/3.`).waitFor();
  assert.equal(await tasks.getByText("Carried over from").count(), 0);
  await tasks.getByRole("link", {name: `${second.id}/3`}).click();
  await tasks.getByText(`Carried over from ${first.id}/1, through 1 round.`).waitFor();
  await tasks.getByText(`It goes on as ${third.id}/2.`).waitFor();
  // A link to a task that is not there chooses none.
  await page.goto(`http://${sheafd.http}/#/rounds/${second.id}?task=99`);
  await page.reload();
  await tasks.getByText("Choose a task").waitFor();
  await finish(page);
});
