// The page on which a tab becomes a worker: what it asks, what it does, and what leaves it.
import assert from "node:assert/strict";
import {type ChildProcess, spawn} from "node:child_process";
import {mkdirSync, readFileSync, writeFileSync} from "node:fs";
import {join} from "node:path";
import test, {after, before} from "node:test";

import {fromBinary} from "@bufbuild/protobuf";
import type {Browser, Page} from "playwright-core";

import {SyncRequestSchema} from "../../sdk/js/gen/sheaf/v1/work_service_pb.js";
import {ContributionSchema} from "../../sdk/js/gen/sheaf/v1/aggregation_pb.js";
import {connect, type Tensor, weighted_mean} from "../../sdk/js/src/index.js";
import {program, Sheafd, sleep, until} from "../sdk/js/sheafd.js";
import {axe, finish, launch, openPage, problemsOf, SCHEMES, sheaf, skip, temporaryFolder, WIDTHS} from "./dashboard.js";

const EXAMPLE = join(process.env["SHEAF_SOURCE"]!, "sdk/js/examples/join");

const folder = temporaryFolder();
let browser: Browser;

before(async () => {
  if (skip === false) browser = await launch();
});

after(async () => {
  if (skip === false) await browser.close();
  folder.remove();
});

// What the browser and the worker say on the console of a server that is gone, or wants a token.
const EXPECTED = /Failed to load resource|ERR_|does not answer|cannot be reached|UNAUTHENTICATED/;

/** A tab of its own window, on the page. */
function openJoin(http: string, view: Parameters<typeof openPage>[3] = {}): Promise<Page> {
  return openPage(browser, http, "/join", {expected: EXPECTED, ...view});
}

async function press(page: Page, name: string): Promise<void> {
  await page.getByRole("button", {name}).click();
}

async function state(page: Page, text: string | RegExp): Promise<void> {
  await page.getByRole("status").filter({hasText: text}).waitFor({timeout: 60_000});
}

function count(page: Page, id: string): Promise<number> {
  return page.locator(`#${id}`).textContent().then(Number);
}

/** So many results of the tab's count. */
async function counted(page: Page, results: number): Promise<void> {
  for (const begin = Date.now(); await count(page, "accepted") < results; await sleep(50)) {
    assert.ok(Date.now() - begin < 120_000, `${results} results of a tab`);
  }
}

// --- `sheaf demo tags --browser` --------------------------------------------------------------------------------------

interface Demo {
  /** Of the page. */
  url: () => string | undefined;
  stdout: () => string;
  code: Promise<number | null>;
  process: ChildProcess;
}

function demo(...args: string[]): Demo {
  const child = spawn(program("sheaf"), ["demo", "tags", ...args], {stdio: ["ignore", "pipe", "pipe"], env: {...process.env, TMPDIR: folder.path}});
  let [out, err] = ["", ""];
  child.stdout.on("data", (bytes) => out += bytes);
  child.stderr.on("data", (bytes) => err += bytes);
  return {
    url: () => /http:\/\/(\S+)\/join/.exec(err)?.[1], stdout: () => out, process: child,
    code: new Promise((resolve) => child.once("exit", resolve)),
  };
}

const digestOf = (text: string): string | undefined => /model sha256 ([0-9a-f]{64})/.exec(text)?.[1];

test("Four tabs and four daemons train tags: closed, frozen, reloaded and offline in the middle, and no bit differs", {skip}, async () => {
  const size = ["--rounds", "5", "--clients", "24"];
  const alone = demo("--workers", "8", ...size);
  assert.equal(await alone.code, 0);
  const shared = demo("--workers", "4", "--browser", "4", "--verify", ...size);
  await until("the demo says where its page is", () => shared.url() !== undefined);
  const tabs = await Promise.all([1, 2, 3, 4].map(() => openJoin(shared.url()!)));
  const [closed, frozen, reloaded, offline] = tabs as [Page, Page, Page, Page];
  for (const tab of tabs) await press(tab, "Join");
  for (const tab of tabs) await counted(tab, 1);
  await closed.close();
  const lifecycle = await frozen.context().newCDPSession(frozen);
  await lifecycle.send("Page.setWebLifecycleState", {state: "frozen"});
  await offline.context().setOffline(true);
  await reloaded.reload();
  await press(reloaded, "Join");
  await sleep(2_000);
  await offline.context().setOffline(false);
  await lifecycle.send("Page.setWebLifecycleState", {state: "active"});
  assert.equal(await shared.code, 0, shared.stdout());
  assert.match(shared.stdout(), /5 rounds recomputed by brute force .*: 0 values differ/);
  assert.equal(digestOf(shared.stdout()), digestOf(alone.stdout()));
  for (const tab of [frozen, reloaded, offline]) await finish(tab);
});

// --- A file of a person's ---------------------------------------------------------------------------------------------

interface Sent {
  path: string;
  body: Buffer;
}

/** All that leaves the tab, its worker threads too. */
function watchRequests(page: Page): Sent[] {
  const sent: Sent[] = [];
  page.context().on("request", (request) => {
    sent.push({path: new URL(request.url()).pathname, body: request.postDataBuffer() ?? Buffer.alloc(0)});
  });
  return sent;
}

test("What leaves a tab is its contribution: of the file that a person chose, nothing else", {skip}, async () => {
  const server = await Sheafd.start("--join", EXAMPLE);
  after(() => server.close());
  const result = connect(server.http).run("file_mean", {
    outputs: {mean: weighted_mean([])}, tasks: {count: 2, perWorkerMax: 1}, minClients: 2,
  }, {timeout: 60});
  const files = ["1.5 2.5 4215.25", "8080.125"];
  const tabs = [];
  const sent: Sent[] = [];
  for (const [i, text] of files.entries()) {
    const file = join(folder.path, `numbers-${i}.txt`);
    writeFileSync(file, text);
    const page = await openJoin(server.http);
    const requests = watchRequests(page);
    assert.equal(await page.locator("#title").textContent(), "The mean of your numbers");
    await page.getByLabel("A text file of numbers").setInputFiles(file);
    assert.ok(requests.every(({path}) => !path.startsWith("/sheaf.v1.")), "nobody is called before the person says so");
    await press(page, "Join");
    tabs.push({page, requests});
  }
  const mean = (await result).get("mean") as Tensor;
  assert.equal(mean.item(), (1.5 + 2.5 + 4215.25 + 8080.125) / 4);
  for (const {page, requests} of tabs) {
    await state(page, "Waiting for work");
    assert.equal(await count(page, "accepted"), 1);
    await press(page, "Stop");
    await state(page, "Stopped");
    sent.push(...requests);
    await finish(page);
  }
  const allowed = new Set(["/join", "/join/files/computations.js", "/sheaf.v1.WorkService/Sync"]);
  const others = sent.filter(({path}) => !allowed.has(path) && !path.startsWith("/ui/"));
  assert.deepEqual(others, []);
  let contributions = 0;
  for (const {path, body} of sent) {
    if (path !== "/sheaf.v1.WorkService/Sync") {
      assert.equal(body.length, 0, path);
      continue;
    }
    for (const {outcome} of fromBinary(SyncRequestSchema, body).results) {
      if (outcome.case !== "contribution") continue;
      ++contributions;
      assert.deepEqual(fromBinary(ContributionSchema, outcome.value).outputs.map(({name}) => name), ["mean"]);
    }
    for (const text of files) assert.ok(!body.includes(text) && !body.includes("4215"), "the file's text");
  }
  assert.ok(contributions >= 2);
});

// --- The page itself --------------------------------------------------------------------------------------------------

test("The page reads well on a phone and a desk, light and dark, by keyboard and aloud", {skip}, async () => {
  const server = await Sheafd.start("--join", EXAMPLE);
  after(() => server.close());
  for (const width of WIDTHS) {
    for (const scheme of SCHEMES) {
      const page = await openJoin(server.http, {width, scheme, bypassCSP: true});
      await page.getByRole("button", {name: "Join"}).waitFor();
      assert.deepEqual(await axe(page), []);
      if (process.env["SHEAF_SCREENSHOTS"]) {
        mkdirSync(process.env["SHEAF_SCREENSHOTS"], {recursive: true});
        await page.screenshot({path: join(process.env["SHEAF_SCREENSHOTS"], `join-${width}-${scheme}.png`), fullPage: true});
      }
      await finish(page);
    }
  }
  const page = await openJoin(server.http);
  const file = join(folder.path, "one.txt");
  writeFileSync(file, "1");
  await page.getByLabel("A text file of numbers").setInputFiles(file);
  await page.getByLabel("Stop after").focus();
  await page.keyboard.press("Enter");
  await state(page, "Waiting for work");
  await page.getByRole("button", {name: "Stop"}).focus();
  await page.keyboard.press("Enter");
  await state(page, "Stopped");
  await finish(page);
});

test("A server that gives tabs nothing says so, and how it would", {skip}, async () => {
  const server = await Sheafd.start();
  after(() => server.close());
  const page = await openJoin(server.http);
  await page.getByText("sheafd --join DIRECTORY").waitFor();
  assert.equal(await page.getByRole("button", {name: "Join"}).isVisible(), false);
  await finish(page);
});

test("A tab keeps to its limits: bytes, battery, a token that the server wants", {skip}, async () => {
  const server = await Sheafd.start("--join", EXAMPLE);
  after(() => server.close());
  const file = join(folder.path, "limits.txt");
  writeFileSync(file, "1 2 3");
  const page = await openJoin(server.http);
  // Chromium's, of a device that can be plugged in.
  await page.addInitScript(`
    const battery = Object.assign(new EventTarget(), {charging: true});
    navigator.getBattery = async () => battery;
    window.plug = (charging) => { battery.charging = charging; battery.dispatchEvent(new Event("chargingchange")); };
  `);
  await page.reload();
  await page.getByLabel("A text file of numbers").setInputFiles(file);
  await press(page, "Join");
  await state(page, "Waiting for work");
  await page.evaluate("plug(false)");
  await state(page, "Paused while this device runs on its battery");
  await page.evaluate("plug(true)");
  await state(page, "Waiting for work");
  await press(page, "Stop");
  await state(page, "Stopped");
  // Every call has some bytes: 1 MB is not reached, and a thousandth of a kilobyte is.
  await page.getByLabel("Stop after").fill("1");
  await page.evaluate("document.getElementById('megabytes').min = '0'; document.getElementById('megabytes').step = 'any'; document.getElementById('megabytes').value = '0.0001'");
  await press(page, "Join");
  await state(page, "the limit of what may be sent and received is reached");
  await page.evaluate("document.getElementById('megabytes').value = '500'");
  const secret = join(folder.path, "operator");
  await sheaf(server.address, ["token", "create", "operator", "--role", "operator", "--to", secret]);
  const workers = join(folder.path, "workers");
  await sheaf(server.address, ["token", "create", "tabs", "--role", "worker", "--to", workers], ["--token-file", secret]);
  await press(page, "Join");
  await state(page, "This server wants a token");
  assert.deepEqual(problemsOf(page), []);
  await page.getByLabel("Token").fill(readFileSync(workers, "utf8").trim());
  await press(page, "Join");
  await state(page, "Waiting for work");
  await finish(page);
});
