// What people do in the pages: sign in, requeue, cancel, drain, save a result. What came of it is asked of the server by `sheaf`.
import assert from "node:assert/strict";
import {createHash} from "node:crypto";
import {readFileSync} from "node:fs";
import {join} from "node:path";
import test, {after, before} from "node:test";

import type {Browser, Page} from "playwright-core";

import {Sheafd} from "../sdk/js/sheafd.js";
import {axe, call, createRound, finish, launch, openPage, requestId, SCHEMES, sheaf, skip, temporaryFolder, WIDTHS} from "./dashboard.js";

const folder = temporaryFolder();
let sheafd: Sheafd;
let browser: Browser;
const secrets: Record<string, string> = {};

/** Asks as the operator. */
function asked(...args: string[]): Promise<any> {
  return sheaf(sheafd.address, args, ["--token-file", join(folder.path, "operator")]);
}

async function makeToken(name: string, role: string, ...options: string[]): Promise<void> {
  const as = secrets["operator"] === undefined ? [] : ["--token-file", join(folder.path, "operator")];
  await sheaf(sheafd.address, ["token", "create", name, "--role", role, "--to", join(folder.path, name), ...options], as);
  secrets[name] = readFileSync(join(folder.path, name), "utf8").trim();
}

/** A worker's call; what it offers has the name of the worker, so that it gets no other round's tasks. */
function sync(worker: string, request: Record<string, unknown>): Promise<any> {
  return call(sheafd.http, "WorkService/Sync", {protocolVersion: 1, worker, pollId: requestId(), computations: [{name: worker, version: 1}], ...request}, secrets["worker"]);
}

/** A round of two tasks, of which one is buried; the buried one's id. */
async function buriedTask(worker: string): Promise<string> {
  const round = await createRound(sheafd.http, {job: worker, computation: {name: worker}, retry: {failedMax: 1}, goal: 2, listed: {tasks: [{}, {}]}}, secrets["submitter"]);
  const {leases} = await sync(worker, {want: 1});
  assert.equal(leases[0].round, round);
  await sync(worker, {results: [{task: leases[0].task, leaseToken: leases[0].leaseToken, failure: {message: "it was not there"}}]});
  assert.equal((await asked("task", "describe", leases[0].task)).task.state, "BURIED");
  return leases[0].task;
}

before(async () => {
  if (skip !== false) return;
  sheafd = await Sheafd.start();
  await makeToken("operator", "operator");
  for (const role of ["viewer", "submitter", "worker"]) await makeToken(role, role);
  await makeToken("elsewhere", "viewer", "--for", "elsewhere");
  browser = await launch();
});

after(async () => {
  if (skip !== false) return;
  await browser.close();
  await sheafd.close();
  folder.remove();
});

// The browser itself says on the console that a call was refused.
const REFUSED = /status of 40[13]/;

async function signedIn(who: string, hash = "", width = 1440): Promise<Page> {
  const page = await openPage(browser, sheafd.http, hash, {width, expected: REFUSED});
  await page.getByLabel("Token").fill(secrets[who]!);
  await page.getByRole("button", {name: "Sign in"}).click();
  await page.getByRole("navigation", {name: "Pages"}).waitFor();
  return page;
}

test("Who has no token is asked for one; it is held to the server, and forgotten with the page", {skip}, async () => {
  const page = await openPage(browser, sheafd.http, "queue", {expected: REFUSED});
  await page.getByRole("heading", {name: "Sign in"}).waitFor();
  assert.equal(await page.getByRole("navigation", {name: "Pages"}).count(), 0);
  await page.keyboard.type("not-a-token");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").waitFor();
  await page.getByLabel("Token").fill(secrets["viewer"]!);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", {name: "Queue"}).waitFor();
  await page.getByRole("heading", {name: "Tasks"}).waitFor();
  const kept = await page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href, history.state])") as string;
  assert.ok(!kept.includes(secrets["viewer"]!), kept);
  await page.getByRole("button", {name: "Sign out"}).click();
  await page.getByRole("heading", {name: "Sign in"}).waitFor();
  await page.getByLabel("Token").fill(secrets["viewer"]!);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", {name: "Tasks"}).waitFor();
  await page.reload();
  await page.getByRole("heading", {name: "Sign in"}).waitFor();
  await finish(page);
});

for (const width of WIDTHS) {
  for (const scheme of SCHEMES) {
    test(`The login, ${width} px, ${scheme}: nothing to stumble over`, {skip}, async () => {
      const page = await openPage(browser, sheafd.http, "", {width, scheme, bypassCSP: true, expected: REFUSED});
      await page.getByRole("heading", {name: "Sign in"}).waitFor();
      assert.deepEqual(await axe(page), []);
      await finish(page);
    });
  }
}

test("Requeue, with the keyboard alone: what was buried in the store is queued in the store", {skip}, async () => {
  const task = await buriedTask("w-requeue");
  const page = await signedIn("operator", "queue");
  const requeue = page.getByRole("button", {name: `Requeue ${task}`});
  await requeue.waitFor();
  await requeue.focus();
  await page.keyboard.press("Enter");
  await requeue.waitFor({state: "detached"});
  const {task: now} = await asked("task", "describe", task);
  assert.equal(now.state, "QUEUED");
  assert.equal(now.numFailed ?? 0, 0);
  await finish(page);
});

test("Cancel: asks first, and the round is cancelled in the store", {skip}, async () => {
  const round = await createRound(sheafd.http, {job: "cancelled"}, secrets["submitter"]);
  const page = await signedIn("operator", `rounds/${round}`);
  await page.getByRole("button", {name: `Cancel ${round}`}).click();
  await page.getByRole("button", {name: "No"}).click();
  assert.equal((await asked("round", "describe", round)).round.state, "COLLECTING");
  await page.getByRole("button", {name: `Cancel ${round}`}).click();
  await page.getByRole("button", {name: "Yes, cancel"}).click();
  await page.getByText("It was cancelled").waitFor();
  const {round: now} = await asked("round", "describe", round);
  assert.equal(now.state, "CANCELLED");
  assert.equal(now.error, "cancelled in the dashboard");
  await finish(page);
});

test("Drain and back: a worker is taken out of service in the store, and taken back", {skip}, async () => {
  await sync("w-drained", {softwareVersion: "js-0.1.0 browser"});
  const isDraining = async () => (await asked("worker", "list")).workers.find((worker: any) => worker.name === "w-drained").isDraining ?? false;
  const page = await signedIn("operator", "workers?name=w-drained");
  await page.getByText("browser", {exact: true}).waitFor();
  await page.getByRole("button", {name: "Drain w-drained"}).click();
  await page.getByRole("button", {name: "Yes, drain"}).click();
  const undo = page.getByRole("button", {name: "Take w-drained back into service"});
  await undo.waitFor();
  assert.equal(await isDraining(), true);
  await undo.click();
  await page.getByRole("button", {name: "Drain w-drained"}).waitFor();
  assert.equal(await isDraining(), false);
  await finish(page);
});

test("Pages offer a viewer nothing that changes anything, and say what it may not see", {skip}, async () => {
  const task = await buriedTask("w-viewed");
  const page = await signedIn("viewer", "queue");
  await page.getByText(task).waitFor();
  for (const hash of ["queue", "workers", `rounds/${task.split("/")[0]}`]) {
    await page.goto(`http://${sheafd.http}/#/${hash}`);
    await page.getByRole("heading").first().waitFor();
    await page.waitForTimeout(300);
    assert.equal(await page.getByRole("button", {name: /Requeue|Cancel |Drain/}).count(), 0, hash);
  }
  await finish(page);
  const stranger = await signedIn("elsewhere", "queue?population=default");
  await stranger.getByText("You may not look at").first().waitFor();
  await stranger.goto(`http://${sheafd.http}/#/queue`);
  // The field was there before the address changed.
  await stranger.waitForFunction(() => document.querySelector<HTMLInputElement>("#population")?.value === "elsewhere");
  await finish(stranger);
});

/** What in the rows of the tables is over another row or another text. */
async function covered(page: Page): Promise<string[]> {
  return await page.evaluate(`[...document.querySelectorAll(".body")].flatMap((body) => {
    const rows = [...body.children].map((row) => [row, row.getBoundingClientRect()]).sort(([, a], [, b]) => a.top - b.top);
    const found = rows.filter(([, box], i) => i > 0 && box.top < rows[i - 1][1].bottom - 0.5).map(([row]) => "a row over " + row.textContent);
    for (const [row, {bottom}] of rows) {
      const texts = [...row.querySelectorAll("*")].filter((part) => [...part.childNodes].some((node) => node.data?.trim()))
        .map((part) => [part, part.getBoundingClientRect()]).filter(([, box]) => box.width > 0);
      for (const [part, box] of texts) {
        if (box.bottom > bottom) found.push("out of its row: " + part.textContent);
        if (texts.some(([other, its]) => !other.contains(part) && !part.contains(other) && its.left < box.right - 1 && box.left < its.right - 1 &&
                                         its.top < box.bottom - 1 && box.top < its.bottom - 1)) found.push("covered: " + part.textContent);
      }
    }
    return found;
  })`) as string[];
}

test("What the server refuses is said beside the button, and stays when the button goes", {skip}, async () => {
  for (const width of WIDTHS) {
    const task = await buriedTask(`w-refused-${width}`);
    const page = await signedIn("operator", "queue", width);
    await page.getByRole("button", {name: `Requeue ${task}`}).waitFor();
    // It ends behind the page's back.
    await page.route(/ListTasks|ListRounds/, (route) => route.abort());
    await asked("round", "cancel", task.split("/")[0]!);
    await page.getByRole("button", {name: `Requeue ${task}`}).click();
    const refusal = page.locator(".action").getByRole("alert");
    await refusal.waitFor();
    assert.match(await refusal.innerText(), /CANCELLED, neither ANNOUNCED nor COLLECTING/);
    assert.deepEqual(await covered(page), []);
    await page.unroute(/ListTasks|ListRounds/);
    await page.getByRole("button", {name: `Requeue ${task}`}).waitFor({state: "detached"});
    await refusal.waitFor();
    assert.deepEqual(await covered(page), []);
    await page.context().close();
  }
});

test("Requeue is offered while the round hands out tasks, and no longer", {skip}, async () => {
  const [open, ended] = [await buriedTask("w-open"), await buriedTask("w-ended")];
  await asked("round", "cancel", ended.split("/")[0]!);
  const page = await signedIn("operator", "queue");
  await page.getByRole("button", {name: `Requeue ${open}`}).waitFor();
  await page.getByText(ended).waitFor();
  assert.equal(await page.getByRole("button", {name: `Requeue ${ended}`}).count(), 0);
  for (const [task, buttons] of [[open, 1], [ended, 0]] as const) {
    const [round, index] = task.split("/");
    await page.goto(`http://${sheafd.http}/#/rounds/${round}?task=${index}`);
    await page.getByRole("heading", {name: round!}).waitFor();
    await page.getByRole("list", {name: "Attempts"}).getByText("it was not there").waitFor();
    assert.equal(await page.getByRole("button", {name: /Requeue/}).count(), buttons, task);
  }
  await finish(page);
});

test("A question covers nothing, and keeps the keys where they are", {skip}, async () => {
  await createRound(sheafd.http, {job: "asked", computation: {name: "w-asked"}, listed: {tasks: [{}, {}, {}]}}, secrets["submitter"]);
  const {leases} = await sync("w-asked", {want: 2});
  assert.equal(leases.length, 2);
  for (const width of WIDTHS) {
    const page = await signedIn("operator", "workers", width);
    const focused = () => page.evaluate("document.activeElement.textContent");
    const drain = page.getByRole("button", {name: "Drain w-asked"});
    await drain.focus();
    await page.keyboard.press("Enter");
    await page.getByRole("button", {name: "Yes, drain"}).waitFor();
    assert.equal(await focused(), "Yes, drain");
    assert.deepEqual(await covered(page), []);
    await page.keyboard.press("Tab");
    // The list is asked for again meanwhile.
    for (let answers = 0; answers < 2; ++answers) await page.waitForResponse(/ListWorkers/);
    await page.waitForTimeout(100);
    assert.equal(await focused(), "No");
    await page.keyboard.press("Enter");
    await drain.waitFor();
    assert.equal(await focused(), "Drain");
    assert.deepEqual(await covered(page), []);
    await page.goto(`http://${sheafd.http}/#/queue?worker=w-asked`);
    await page.getByRole("button", {name: `Requeue ${leases[0].task}`}).click();
    await page.getByText("Take it away from w-asked?").waitFor();
    assert.deepEqual(await covered(page), []);
    await finish(page);
  }
});

test("A submitter saves what a round released, byte for byte", {skip}, async () => {
  const round = await createRound(sheafd.http, {job: "saved", computation: {name: "w-saved"}}, secrets["submitter"]);
  for (let result: any[] = [], done = false; !done;) {
    const {leases = []} = await sync("w-saved", {want: result.length === 0 ? 8 : 0, results: result});
    done = result.length > 0;
    result = leases.filter((lease: any) => lease.round === round).map(({task, leaseToken}: any) => ({task, leaseToken, contribution:
      // outputs { name: "x" dense { dtype: FLOAT32 data: 1.0f } }
      Buffer.from([0x0a, 0x0d, 0x0a, 0x01, 0x78, 0x12, 0x08, 0x08, 0x01, 0x1a, 0x04, 0, 0, 0x80, 0x3f]).toString("base64")}));
  }
  const page = await signedIn("submitter", `rounds/${round}`);
  const saving = page.waitForEvent("download");
  await page.getByRole("button", {name: "Download the result"}).click();
  const download = await saving;
  assert.equal(download.suggestedFilename(), `${round}.safetensors`);
  const bytes = readFileSync((await download.path())!);
  const {round: now} = await asked("round", "describe", round);
  assert.equal(createHash("sha256").update(bytes).digest("hex"), now.aggregate.digest);
  await finish(page);
  const viewer = await signedIn("viewer", `rounds/${round}`);
  await viewer.getByText("Its result is for submitters").waitFor();
  await finish(viewer);
});
