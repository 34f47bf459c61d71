// Who works: what each does now, and what became of its attempts.
import type {WorkerJson} from "../../gen/sheaf/v1/inspection_service_pb.js";
import {requestId} from "../api/client.js";
import {linkTo, place, setQuery} from "../live/location.js";
import type {Rights} from "../live/rights.js";
import {client} from "../live/session.js";
import {usePages} from "../live/use_pages.js";
import {Action, Missing, Notice, Section, State} from "../parts/basics.js";
import {ServerCommands} from "../parts/commands.js";
import {type Column, Table} from "../parts/table.js";
import {age, count, int, plural} from "../text/format.js";

/** What a worker does now, in one word: as `sheaf worker list` has it. */
export function workerState(worker: WorkerJson): string {
  if (worker.isDraining) return int(worker.numLeased) > 0 ? "DRAINING" : "DRAINED";
  if (int(worker.numLeased) > 0) return "WORKING";
  return worker.isParked ? "WAITING" : "AWAY";
}

/** By what sdk/js says of itself. */
function isBrowser({softwareVersion = ""}: WorkerJson): boolean {
  return /\bbrowser\b/.test(softwareVersion);
}

/** Without what the badge says. */
function versionOf({softwareVersion = ""}: WorkerJson): string {
  return softwareVersion.replace(/ ?\bbrowser\b/, "");
}

function offersOf({computations = []}: WorkerJson): string {
  return computations.map(({name, version}) => `${name}/${version ?? 0}`).join(", ");
}

function labelsOf({labels = {}}: WorkerJson): string {
  return Object.entries(labels).sort(([a], [b]) => a < b ? -1 : 1).map(([key, value]) => `${key}=${value}`).join(", ");
}

const COLUMNS: Column<WorkerJson>[] = [
  {name: "Worker", class: "main name", cell: (worker) => <a href={linkTo("queue", "", {worker: worker.name!, states: "LEASED"})} title={worker.name}>{worker.name}</a>},
  {name: "State", cell: (worker) => <State of={workerState(worker)}/>},
  {name: "Leased", class: "num wide", cell: (worker) => count(worker.numLeased)},
  {name: "Succeeded", class: "num", cell: (worker) => count(worker.numSucceeded)},
  {name: "Failed", class: "num wide", cell: (worker) => count(worker.numFailed)},
  {name: "Lost", class: "num wide", cell: (worker) => count(worker.numLost)},
  {name: "Last seen", class: "num", cell: (worker) => age(worker.lastSeenTime)},
  {name: "Version", class: "name", cell: (worker) => <>
    {isBrowser(worker) && <span class="badge">browser</span>}<span title={worker.softwareVersion}>{versionOf(worker)}</span>
  </>},
  {name: "Offers", class: "wide name", cell: (worker) => <span title={offersOf(worker)}>{offersOf(worker)}</span>},
  {name: "Labels", class: "wide name", cell: (worker) => <span title={labelsOf(worker)}>{labelsOf(worker)}</span>},
];

export function Workers({population, rights}: {population: string; rights: Rights}) {
  const name = place.value.query.get("name") ?? "";
  const list = usePages<WorkerJson>(async (pageToken, pageSize, signal) => {
    const {workers = [], nextPageToken} = await client.call("InspectionService/ListWorkers", {population, pageToken, pageSize}, signal);
    return {items: workers, next: nextPageToken};
  }, (worker) => worker.name!, ["workers", population]);
  const drain = async (worker: WorkerJson) => {
    await client.call("InspectionService/DrainWorker", {requestId: requestId(), worker: worker.name, population, undo: worker.isDraining});
    list.refresh();
  };
  const columns = rights.isOperator ? [...COLUMNS, {name: "Action", class: "num act", cell: (worker: WorkerJson) => (
    worker.isDraining ? <Action name="Undo" label={`Take ${worker.name} back into service`} act={() => drain(worker)}/>
      : <Action name="Drain" label={`Drain ${worker.name}`} question="It gets nothing more. Drain it?" act={() => drain(worker)}/>)}] : COLUMNS;
  const all = list.value?.items;
  const rows = all?.filter((worker) => name === "" || worker.name!.includes(name));
  return <>
    <h1>Workers</h1>
    <div class="filters">
      <label>Name <input value={name} size={18} spellcheck={false} autocomplete="off" onInput={(event) => setQuery({name: event.currentTarget.value.trim()})}/></label>
      {rows && <span class="dim" role="status">{plural(rows.length, "worker")}{list.value?.next && " or more"}</span>}
    </div>
    <Missing live={list} what="the workers"/>
    {all?.length === 0 && <Notice title={`No worker of the population ${population} has called yet`}>
      <p>Start one where the data are:</p><ServerCommands commands={["sheaf-worker"]} population={population}/>
    </Notice>}
    {rows && rows.length > 0 && <Section title="Workers, by name">
      <Table name={rights.isOperator ? "workers t-acts" : "workers"} label="Workers, by name" rows={rows} columns={columns} idOf={(worker) => worker.name!} onEnd={list.more} hasMore={Boolean(list.value?.next)}/>
    </Section>}
    {all && all.length > 0 && rows?.length === 0 && <p class="dim">No worker has a name with “{name}”.</p>}
  </>;
}
