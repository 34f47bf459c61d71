// The page on which a person lets a tab compute: what it would run, its limits, a start, a stop, and what it did. Nothing is
// computed, and nobody but the server that sent the page is called, before the person says so.
import type {About, Order, Report} from "./messages.js";

// What the server's owner gives to tabs: sheafd --join DIRECTORY.
const MODULE = new URL("join/files/computations.js", document.baseURI).href;

const MEGABYTE = 1e6;

interface Battery extends EventTarget {
  readonly charging: boolean;
}
interface Network extends EventTarget {
  readonly saveData?: boolean;
  readonly type?: string;
}

const element = <E extends HTMLElement>(id: string): E => document.getElementById(id) as E;
const [form, file, sample, tokenField] = [element<HTMLFormElement>("form"), element<HTMLInputElement>("file"),
                                          element<HTMLInputElement>("sample"), element<HTMLInputElement>("token")];
const [startButton, stopButton] = [element<HTMLButtonElement>("start"), element<HTMLButtonElement>("stop")];
const [plugged, unmetered] = [element<HTMLInputElement>("plugged"), element<HTMLInputElement>("unmetered")];

function show(id: string, text: string): void {
  element(id).textContent = text;
}

function tell(text: string, isBad = false): void {
  const state = element("state");
  if (state.textContent !== text) state.textContent = text;
  state.classList.toggle("bad", isBad);
}

function bytesText(bytes: number): string {
  const units = ["B", "kB", "MB", "GB"];
  let unit = 0;
  for (; bytes >= 1000 && unit < units.length - 1; ++unit) bytes /= 1000;
  return `${bytes >= 100 || unit === 0 ? Math.round(bytes) : bytes.toFixed(1)} ${units[unit]}`;
}

// --- What is offered ------------------------------------------------------------------------------------------------

async function offer(): Promise<void> {
  let about: About;
  try {
    ({about} = await import(MODULE) as {about: About});
  } catch {
    show("about", "This server has nothing for tabs to compute. Who runs it gives tabs something with: sheafd --join DIRECTORY");
    return;
  }
  document.title = `${about.title} · Sheaf`;
  show("title", about.title);
  show("about", about.text);
  show("server", location.origin);
  if (about.file === undefined) {
    element("choices").hidden = true;
  } else {
    show("file-text", about.file.label);
    file.accept = about.file.accept ?? "";
    element("sample-label").hidden = about.file.sample === undefined;
    sample.checked = about.file.sample !== undefined;
    const choose = (): void => {
      element("file-label").hidden = sample.checked;
      file.required = !sample.checked;
    };
    sample.onchange = choose;
    choose();
  }
  element("facts").hidden = false;
  form.hidden = false;
  form.onsubmit = (event) => {
    event.preventDefault();
    void begin(about);
  };
  stopButton.onclick = () => {
    stopButton.disabled = true;
    isWanted = false;
    if (thread === null) return ended("Stopped.");
    tell("Stopping: what was taken is handed in or given back.");
    order({kind: "stop"});
  };
}

// --- What runs ------------------------------------------------------------------------------------------------------

let thread: Worker | null = null;
let start: Extract<Order, {kind: "start"}> | null = null;
// The person wants it to run; it may be paused.
let isWanted = false;
// Of threads that ended, in pauses.
let before = {accepted: 0, leases: 0, sent: 0, received: 0};
let now = {...before};

function order(what: Order): void {
  thread?.postMessage(what);
}

async function begin(about: About): Promise<void> {
  const uses = about.file !== undefined && !sample.checked ? file.files?.[0] : undefined;
  start = {
    kind: "start", module: MODULE, bytes: uses === undefined ? null : await uses.arrayBuffer(),
    sample: about.file !== undefined && sample.checked ? about.file.sample ?? null : null, token: tokenField.value, bytesMax: 0,
  };
  isWanted = true;
  startButton.disabled = true;
  stopButton.disabled = false;
  element("counters").hidden = false;
  for (const part of form.querySelectorAll("input")) part.disabled = part !== plugged && part !== unmetered;
  await goOnOrPause();
}

function run(): void {
  if (start === null) return;
  const used = before.sent + before.received;
  const bytesMax = Number(element<HTMLInputElement>("megabytes").value) * MEGABYTE - used;
  if (bytesMax <= 0) return ended(limitText());
  thread = new Worker(new URL(document.body.dataset["worker"]!, document.baseURI), {type: "module"});
  thread.onmessage = ({data}: MessageEvent<Report>) => onReport(data);
  thread.onerror = () => ended("The thread that computes could not start.", true);
  tell("Preparing the data …");
  order({...start, bytesMax});
}

const STATES: Record<string, string> = {
  idle: "Waiting to call the server again.", pulling: "Waiting for work.", fetching: "Fetching what a task needs.",
  running: "Computing.", submitting: "Handing in.", draining: "Stopping: what was taken is handed in or given back.",
  drained: "The server's operator gives this tab nothing at present.", done: "Stopped.",
};

function onReport(report: Report): void {
  if (report.kind === "ended") {
    if (report.needsToken) {
      element("token-label").hidden = false;
      ended("This server wants a token: enter the one that you were given.", true);
      return tokenField.focus();
    }
    if (report.problem !== "") return ended(`It ended: ${report.problem}`, true);
    if (report.isOverLimit) return ended(limitText());
    endThread();
    return void (isWanted ? goOnOrPause() : ended("Stopped."));
  }
  now = report;
  showCounters();
  if (report.summary !== "") {
    show("data", report.summary);
    element("data-row").hidden = false;
  }
  if (report.isReachable) tell(STATES[report.state] ?? report.state);
  else tell("The server does not answer. This tab calls again by itself.", true);
}

function showCounters(): void {
  show("accepted", String(before.accepted + now.accepted));
  show("leases", String(before.leases + now.leases));
  show("sent", bytesText(before.sent + now.sent));
  show("received", bytesText(before.received + now.received));
}

function endThread(): void {
  thread?.terminate();
  thread = null;
  before = {
    accepted: before.accepted + now.accepted, leases: before.leases + now.leases, sent: before.sent + now.sent,
    received: before.received + now.received,
  };
  now = {accepted: 0, leases: 0, sent: 0, received: 0};
}

function ended(text: string, isBad = false): void {
  isWanted = false;
  endThread();
  tell(text, isBad);
  startButton.disabled = false;
  stopButton.disabled = true;
  for (const part of form.querySelectorAll("input")) part.disabled = false;
}

function limitText(): string {
  return "Stopped: the limit of what may be sent and received is reached.";
}

// --- Battery and network --------------------------------------------------------------------------------------------

const network = (navigator as {connection?: Network}).connection;
let battery: Battery | null = null;

function reasonToPause(): string {
  if (plugged.checked && battery?.charging === false) return "Paused while this device runs on its battery.";
  const isMetered = network?.saveData === true || network?.type === "cellular";
  return unmetered.checked && isMetered ? "Paused while this network is metered." : "";
}

async function goOnOrPause(): Promise<void> {
  if (!isWanted) return;
  const reason = reasonToPause();
  if (reason === "" && thread === null) run();
  if (reason !== "" && thread !== null) order({kind: "stop"});
  if (reason !== "" && thread === null) tell(reason);
}

async function watchDevice(): Promise<void> {
  const getBattery = (navigator as {getBattery?: () => Promise<Battery>}).getBattery;
  battery = await getBattery?.call(navigator).catch(() => null) ?? null;
  if (battery === null) show("battery", "(this browser does not tell)");
  if (network === undefined) show("network", "(this browser does not tell)");
  battery?.addEventListener("chargingchange", () => void goOnOrPause());
  network?.addEventListener("change", () => void goOnOrPause());
  for (const box of [plugged, unmetered]) box.addEventListener("change", () => void goOnOrPause());
}

await watchDevice();
await offer();
