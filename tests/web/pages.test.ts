// The pages of a real server, with the rounds of a real run, as a browser shows them.
import assert from "node:assert/strict";
import test, {after, before} from "node:test";

import type {Browser, Page} from "playwright-core";

import {Sheafd} from "../sdk/js/sheafd.js";
import {axe, call, createRound, cutTexts, finish, launch, openPage, problemsOf, requestId, SCHEMES, skip, temporaryFolder, trainedStore, WIDTHS} from "./dashboard.js";

const ROUNDS = 6;

const folder = temporaryFolder();
let sheafd: Sheafd;
let browser: Browser;
/** Newest first. */
let trained: {id: string}[];
let stuck: string;
let failing: string;

before(async () => {
  if (skip !== false) return;
  sheafd = await Sheafd.start("--data-dir", await trainedStore(folder.path, ROUNDS));
  trained = (await call(sheafd.http, "RoundService/ListRounds", {})).rounds;
  assert.equal(trained.length, ROUNDS);
  // One that nobody can compute, one that fails, and a worker that waits.
  stuck = await createRound(sheafd.http, {job: "stuck", computation: {name: "nobody-offers-this"}, listed: {tasks: [{dataSelector: "client:1"}, {}, {}]}});
  failing = await createRound(sheafd.http, {job: "failing", computation: {name: "selftest"}, retry: {failedMax: 1}, listed: {tasks: [{payload: "AAAA"}, {payload: "AAAA"}]}});
  await call(sheafd.http, "WorkService/Sync", {protocolVersion: 1, worker: "tab-1", softwareVersion: "js-0.1.0 browser", pollId: "a", computations: [{name: "selftest", version: 1}], want: 1});
  const {leases = []} = await call(sheafd.http, "WorkService/Sync", {
    protocolVersion: 1, worker: "daemon-1", softwareVersion: "0.1.0", labels: {zone: "north"}, pollId: "b", computations: [{name: "selftest", version: 1}], want: 1});
  await call(sheafd.http, "WorkService/Sync", {
    protocolVersion: 1, worker: "daemon-1", pollId: "c", computations: [{name: "selftest", version: 1}],
    results: leases.map(({task, leaseToken}: any) => ({task, leaseToken, failure: {message: "the file is not there", permanent: true}}))});
  assert.ok(failing && leases.length === 1);
  browser = await launch();
});

after(async () => {
  if (skip !== false) return;
  await browser.close();
  await sheafd.close();
  folder.remove();
});

// Each, and a text that is there when it is complete.
const PAGES: [string, () => string, string][] = [
  ["the overview", () => "", "Ended lately"],
  ["the rounds", () => "rounds", "Rounds, newest first"],
  ["a round that succeeded", () => `rounds/${trained[0]!.id}`, "Divided by"],
  ["a round that goes on", () => `rounds/${stuck}`, "Divided by"],
  ["a round that failed", () => `rounds/${failing}?task=1`, "the file is not there"],
  ["the queue", () => "queue", "the file is not there"],
  ["the workers", () => "workers", "daemon-1"],
  ["a job", () => "jobs/tags", "Its rounds, newest first"],
  ["a round that is not there", () => "rounds/r-00000000", "There is no answer"],
  ["a population without rounds", () => "?population=elsewhere", "has no rounds yet"],
  ["a population without workers", () => "workers?population=elsewhere", "has called yet"],
];

for (const [name, hash, text] of PAGES) {
  for (const width of WIDTHS) {
    for (const scheme of SCHEMES) {
      test(`${name}, ${width} px, ${scheme}: no error, no violation, nothing cut off, nothing to stumble over`, {skip}, async () => {
        // What the browser itself says of a 404.
        const expected = name === "a round that is not there" ? /status of 404/ : undefined;
        const page = await openPage(browser, sheafd.http, hash(), {width, scheme, expected});
        await page.getByText(text).first().waitFor();
        await page.getByText("Loading").first().waitFor({state: "detached"});
        assert.deepEqual(await cutTexts(page), []);
        await finish(page);
        const again = await openPage(browser, sheafd.http, hash(), {width, scheme, bypassCSP: true});
        await again.getByText(text).first().waitFor();
        assert.deepEqual(await axe(again), []);
        await again.context().close();
      });
    }
  }
}

test("A round that succeeded says where its time went, how sparse it was, and what it measured", {skip}, async () => {
  const page = await openPage(browser, sheafd.http, `rounds/${trained[0]!.id}`);
  const section = (title: string) => page.getByRole("region", {name: title});
  await section("Metrics, means over clients").getByText("loss").waitFor();
  for (const phase of ["wait", "download", "prepare", "compute", "upload", "fold", "commit"]) {
    await section("Where the time went").getByText(phase, {exact: true}).waitFor();
  }
  await section("Tasks").getByText("succeeded 30").waitFor();
  const sparsity = await section("Bytes, and how sparse it is").innerText();
  assert.match(sparsity, /rows each, [\d,]+ in all; [\d,]+ different ones/);
  assert.match(sparsity, /times less/);
  // In the milliseconds that the page says, too, however short it was.
  const took = await page.locator(".figure", {hasText: "Took"}).locator("dd").innerText();
  const [, value, unit] = /^([\d.]+)(ms|s)$/.exec(took)!;
  const [, explained] = new RegExp(`SUCCEEDED after ([\\d.]+)${unit}\\.`).exec(await section("Explanation").innerText())!;
  assert.ok(Math.abs(Number(explained) - Number(value)) <= (unit === "s" ? 0.1 : 0.051), `${explained} and ${took}`);
  await finish(page);
});

test("What only rounds that succeeded have is promised of none that ended otherwise", {skip}, async () => {
  const cancelled = await createRound(sheafd.http, {job: "stuck", computation: {name: "nobody-offers-this"}});
  await call(sheafd.http, "RoundService/CancelRound", {requestId: requestId(), round: cancelled, reason: "of no use"});
  for (const [id, when] of [
    [stuck, "known when the round has succeeded."], [failing, "known of rounds that succeeded; this one failed."],
    [cancelled, "known of rounds that succeeded; this one was cancelled."],
  ] as const) {
    const page = await openPage(browser, sheafd.http, `rounds/${id}`);
    await page.getByRole("region", {name: "Where the time went"}).getByText(`It is ${when}`).waitFor();
    await page.getByRole("region", {name: "Metrics, means over clients"}).getByText(`They are ${when}`).waitFor();
    await finish(page);
  }
});

test("On a phone nothing has to be scrolled sideways: outputs are blocks, commands are broken between their options", {skip}, async () => {
  const page = await openPage(browser, sheafd.http, `rounds/${trained[0]!.id}`, {width: 375});
  const outputs = page.getByRole("region", {name: "Outputs"});
  await outputs.getByText("float32 [").first().waitFor();
  assert.equal(await outputs.getByRole("row").count(), 3, "it is a table still");
  assert.ok(Number(await outputs.locator(".scroll").evaluate((element) => element.scrollWidth - element.clientWidth)) <= 0);
  await page.goto(`http://${sheafd.http}/#/workers`);
  const version = page.getByRole("row").filter({hasText: "tab-1"}).getByRole("cell").filter({hasText: "browser"});
  assert.equal(await version.innerText(), "browserjs-0.1.0");
  assert.ok(Number(await version.evaluate((element) => element.scrollWidth - element.clientWidth)) <= 0);
  await page.goto(`http://${sheafd.http}/#/workers?population=a-population-with-a-name`);
  const command = page.locator("pre code");
  await command.waitFor();
  // What is copied is the line; what is seen are an option and its value side by side.
  assert.equal(await command.textContent(), `sheaf-worker --server http://${sheafd.http} --population a-population-with-a-name`);
  for (const unit of await command.locator(".unit").all()) assert.ok((await unit.boundingBox())!.height < 25, await unit.innerText());
  await finish(page);
});

test("Where there is nothing yet, the commands lead to this server, and to this population of it", {skip}, async () => {
  const other = await Sheafd.start("--store", "memory");
  after(() => other.close());
  const server = `--server http://${other.http}`;
  const quoted = "--population 'it'\\''s'";
  for (const [hash, commands] of [
    ["", [`sheaf round create -f round.json --wait ${server}`, `sheaf-worker ${server}`]],
    ["rounds?population=it's", [`sheaf round create -f round.json --wait ${server} ${quoted}`, `sheaf-worker ${server} ${quoted}`]],
    ["workers", [`sheaf-worker ${server}`]], ["workers?population=elsewhere", [`sheaf-worker ${server} --population elsewhere`]],
  ] as const) {
    const page = await openPage(browser, other.http, hash);
    await page.locator("pre code").first().waitFor();
    assert.deepEqual(await page.locator("pre code").allTextContents(), commands);
    // A store in memory has no directory.
    if (hash === "") assert.equal(await page.locator(".fields div", {hasText: "Store"}).locator("dd").innerText(), "memory");
    await finish(page);
  }
});

test("Figures of the queue are of one height, and only jobs that measured something have cards", {skip}, async () => {
  for (const width of WIDTHS) {
    const page = await openPage(browser, sheafd.http, "queue", {width});
    // Two answers, so that the rates have their lines.
    await page.locator(".figure svg.spark").nth(1).waitFor();
    const heights = await page.locator(".figure").evaluateAll((figures) => figures.map((figure) => Math.round(figure.getBoundingClientRect().height)));
    assert.equal(new Set(heights).size, 1, `${width} px: ${heights}`);
    await page.goto(`http://${sheafd.http}/#/rounds`);
    await page.getByRole("list", {name: "Metrics of the newest jobs"}).waitFor();
    assert.deepEqual(await page.locator(".jobs a").allInnerTexts(), ["tags"]);
    await finish(page);
  }
});

test("What the server has is what the page shows", {skip}, async () => {
  const {round} = await call(sheafd.http, "RoundService/GetRound", {round: trained[0]!.id});
  const page = await openPage(browser, sheafd.http, `rounds/${trained[0]!.id}`);
  await page.getByText(round.aggregate.digest).waitFor();
  const [output] = round.aggregate.outputs;
  const count = (value: string) => Number(value).toLocaleString("en-US");
  await page.getByText(`${count(output.touched)} of ${count(round.spec.aggregate.outputs[0].denseShape[0])} rows`).waitFor();
  const fold = round.aggregate.folds[0];
  assert.equal(fold.contributions, round.numContributions);
  await page.getByText(`${count(fold.rows)} in all`).waitFor();
  await finish(page);
});

/** Presses Tab until the element in focus is the one that is meant. */
async function tabTo(page: Page, isIt: string): Promise<void> {
  for (let presses = 0; presses < 80; ++presses) {
    await page.keyboard.press("Tab");
    if (await page.evaluate(`(${isIt})(document.activeElement)`)) return;
  }
  assert.fail(`Tab does not come to ${isIt}`);
}

test("With the keyboard alone: from the overview to a task's attempts, and back", {skip}, async () => {
  const page = await openPage(browser, sheafd.http, "");
  await page.getByText("Ended lately").waitFor();
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate("document.activeElement.tagName"), "MAIN", "the first stop skips to the page");
  await page.reload();
  await page.getByText("Ended lately").waitFor();
  await tabTo(page, "(element) => element.textContent === 'Rounds'");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", {name: "Rounds, newest first"}).waitFor();
  await tabTo(page, `(element) => element.textContent === '${trained[0]!.id}'`);
  await page.keyboard.press("Enter");
  await page.getByRole("slider", {name: "Tasks, by index"}).waitFor();
  await tabTo(page, "(element) => element.getAttribute('role') === 'slider'");
  await page.keyboard.press("End");
  await page.getByText(`${trained[0]!.id}/29`).waitFor();
  await page.getByRole("list", {name: "Attempts"}).getByText("succeeded").waitFor();
  await page.keyboard.press("Home");
  await page.getByText(`${trained[0]!.id}/0`).waitFor();
  assert.match(await page.getByRole("slider", {name: "Tasks, by index"}).getAttribute("aria-valuetext") ?? "", /^task 0: succeeded/);
  await page.goBack();
  await page.getByRole("heading", {name: "Rounds, newest first"}).waitFor();
  await finish(page);
});

test("Dark and light: as the system has it, or as somebody chooses", {skip}, async () => {
  for (const scheme of SCHEMES) {
    const page = await openPage(browser, sheafd.http, "", {scheme});
    const ground = () => page.evaluate("getComputedStyle(document.documentElement).backgroundColor");
    await page.getByText("Ended lately").waitFor();
    const first = await ground();
    await page.getByRole("button", {name: "Dark"}).click();
    const second = await ground();
    assert.notEqual(second, first);
    await page.emulateMedia({colorScheme: scheme === "dark" ? "light" : "dark"});
    assert.equal(await ground(), second, "what was chosen stays");
    await finish(page);
  }
});

const EVIL = '<img src=x onerror="window.stolen=1"><script>window.stolen=1</script>{{7*7}}"\'`';

test("Names and texts that are markup and scripts are shown, and are nothing else", {skip}, async () => {
  const other = await Sheafd.start("--store", "memory");
  after(() => other.close());
  const id = await createRound(other.http, {job: "evil", computation: {name: "mean"}, listed: {tasks: [{dataSelector: EVIL}, {dataSelector: EVIL}]}, retry: {failedMax: 1}});
  const sync = {protocolVersion: 1, worker: "w", softwareVersion: EVIL.slice(0, 60), computations: [{name: "mean", version: 1}]};
  const {leases} = await call(other.http, "WorkService/Sync", {...sync, pollId: "a", want: 1});
  await call(other.http, "WorkService/Sync", {...sync, results: [{task: leases[0].task, leaseToken: leases[0].leaseToken, failure: {message: EVIL}}]});
  const cancelled = await createRound(other.http, {job: "evil"});
  await call(other.http, "RoundService/CancelRound", {requestId: requestId(), round: cancelled, reason: EVIL});
  for (const hash of ["", "rounds", `rounds/${id}`, `rounds/${cancelled}`, "queue", "workers", "jobs/evil", `jobs/${encodeURIComponent(EVIL)}`,
                      `?population=${encodeURIComponent(EVIL)}`, `rounds/${encodeURIComponent(EVIL)}`, encodeURIComponent(EVIL), "rounds/%E0%A4%A"]) {
    const page = await openPage(browser, other.http, hash, {expected: /status of 40[04]/});
    await page.getByRole("heading").first().waitFor();
    if (["queue", `rounds/${cancelled}`].includes(hash)) await page.getByText(EVIL).first().waitFor();
    await isInert(page);
    await finish(page);
  }
});

/** The page's own elements, no matter what is in its texts. */
async function isInert(page: Page): Promise<void> {
  await page.waitForTimeout(200);
  assert.equal(await page.evaluate("window.stolen"), undefined, page.url());
  assert.equal(await page.locator("#app img, #app script").count(), 0, page.url());
}

/** The same answer, of which each text is a script: of a server that checks no names. */
function poisoned(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(poisoned);
  if (typeof value === "object" && value !== null) {
    return Object.fromEntries(Object.entries(value).map(([key, each]) => (
      key === "metrics" ? [key, {[EVIL]: 1.5}] : ["state", "states", "roles", "nextPageToken"].includes(key) ? [key, each] : [key, poisoned(each)])));
  }
  return typeof value === "string" && !/^-?[\d.]+s?$|^\d{4}-\d\d-\d\dT/.test(value) ? EVIL : value;
}

test("Whatever a server answers is text, in every place of every page", {skip}, async () => {
  for (const hash of ["", "rounds", `rounds/${trained[0]!.id}`, `rounds/${stuck}`, "queue", "workers", "jobs/tags"]) {
    const context = await browser.newContext();
    await context.route(/sheaf\.v1\./, async (route) => {
      const answer = await route.fetch();
      await route.fulfill({response: answer, json: poisoned(await answer.json())});
    });
    const page = await openPage(browser, sheafd.http, hash, {context});
    await page.getByText(EVIL).first().waitFor({state: "attached"});
    await isInert(page);
    assert.deepEqual(problemsOf(page), [], hash);
    await context.unrouteAll({behavior: "ignoreErrors"});
    await context.close();
  }
  // An error's text, too.
  const context = await browser.newContext();
  await context.route(/sheaf\.v1\./, (route) => route.fulfill({status: 403, json: {code: "permission_denied", message: EVIL}}));
  const page = await openPage(browser, sheafd.http, "queue", {context, expected: /status of 403/});
  await page.getByText(EVIL).first().waitFor();
  await isInert(page);
  await context.unrouteAll({behavior: "ignoreErrors"});
  await context.close();
});

test("A page asks nothing while its tab is hidden, and at once when it is seen again", {skip}, async () => {
  const page = await openPage(browser, sheafd.http, "queue");
  await page.getByText("the file is not there").waitFor();
  const hide = (hidden: boolean) => page.evaluate(`
    Object.defineProperty(document, "hidden", {configurable: true, get: () => ${hidden}});
    document.dispatchEvent(new Event("visibilitychange"));`);
  let calls = 0;
  page.on("request", () => void ++calls);
  await hide(true);
  await page.getByText("paused").waitFor();
  calls = 0;
  await new Promise((resolve) => setTimeout(resolve, 5000));
  assert.equal(calls, 0);
  await hide(false);
  await page.getByText("live", {exact: true}).waitFor();
  await page.waitForRequest(/DescribeQueue/, {timeout: 2000}).catch(() => {});
  assert.ok(calls > 0);
  await finish(page);
});

test("A server that goes away is told of, what was known stays, and all is well when it is back", {skip}, async () => {
  const other = await Sheafd.start();
  after(() => other.close());
  const id = await createRound(other.http, {job: "waits"});
  const page = await openPage(browser, other.http, "", {expected: /ERR_(CONNECTION|EMPTY|SOCKET)/});
  await page.getByText(id).waitFor();
  await other.kill();
  await page.getByText("The server does not answer").waitFor();
  await page.getByText(id).waitFor();
  await other.start();
  await page.getByText("The server does not answer").waitFor({state: "detached", timeout: 40_000});
  const later = await createRound(other.http, {job: "later"});
  await page.getByText(later).waitFor();
  await finish(page);
});
