// What waits, what runs and what went wrong: the live rounds of a population, and its tasks by state, round and worker.
import {useEffect, useState} from "preact/hooks";

import type {TaskJson} from "../../gen/sheaf/v1/task_pb.js";
import {linkTo, place, setQuery} from "../live/location.js";
import type {Rights} from "../live/rights.js";
import {fetchRounds, LIVE_STATES} from "../live/rounds.js";
import {client} from "../live/session.js";
import {useOpenRounds} from "../live/use_open_rounds.js";
import {usePages} from "../live/use_pages.js";
import {Missing, Section, State, stateName} from "../parts/basics.js";
import {QueueFigures} from "../parts/queue_figures.js";
import {RoundsTable} from "../parts/rounds_table.js";
import {type Column, Table} from "../parts/table.js";
import {CancelAction, isRequeuable, TaskAction} from "../parts/task_action.js";
import {age, count, plural} from "../text/format.js";

const STATES = ["QUEUED", "LEASED", "TASK_FAILED", "BURIED", "TASK_SUCCEEDED", "TASK_CANCELLED"];
// What somebody who looks after a queue has to do with.
const AT_FIRST = "QUEUED,LEASED,TASK_FAILED,BURIED";

const COLUMNS: Column<TaskJson>[] = [
  {name: "Task", class: "main", cell: (task) => <a class="id" href={linkTo("rounds", task.round)}>{task.id}</a>},
  {name: "State", cell: (task) => <State of={task.state}/>},
  {name: "Data", class: "wide name", cell: (task) => <span title={task.dataSelector}>{task.dataSelector}</span>},
  {name: "Worker", class: "name worker", cell: (task) => task.worker && <a href={linkTo("workers", "", {name: task.worker})} title={task.worker}>{task.worker}</a>},
  {name: "Attempts", class: "num wide", cell: (task) => count(task.numAttempts)},
  {name: "Failed", class: "num wide", cell: (task) => count(task.numFailed)},
  {name: "Lost", class: "num wide", cell: (task) => count(task.numLost)},
  {name: "Age", class: "num", cell: (task) => age(task.createTime)},
  {name: "Last error", class: "name error", cell: (task) => task.lastError && <span title={task.lastError}>{task.lastError}</span>},
];

function TextFilter({name, label}: {name: string; label: string}) {
  const current = place.value.query.get(name) ?? "";
  const [text, setText] = useState(current);
  useEffect(() => setText(current), [current]);
  return <label>{label} <input value={text} size={14} spellcheck={false} autocomplete="off" onInput={(event) => setText(event.currentTarget.value)}
                               onChange={(event) => setQuery({[name]: event.currentTarget.value.trim()})}/></label>;
}

export function Queue({population, rights}: {population: string; rights: Rights}) {
  const {query} = place.value;
  const states = (query.get("states") ?? AT_FIRST).split(",").filter((state) => STATES.includes(state));
  const [round, worker] = [query.get("round") ?? "", query.get("worker") ?? ""];
  const running = usePages(fetchRounds(population, "", LIVE_STATES), (row) => row.id, ["live", population]);
  const list = usePages<TaskJson>(async (pageToken, pageSize, signal) => {
    const {tasks = [], nextPageToken} = await client.call("InspectionService/ListTasks",
      {population, round, worker, states: states as TaskJson["state"][] as never, pageToken, pageSize}, signal);
    return {items: tasks, next: nextPageToken};
  }, (task) => task.id!, ["tasks", population, states, round, worker]);
  const toggle = (state: string) => {
    const next = states.includes(state) ? states.filter((other) => other !== state) : STATES.filter((other) => other === state || states.includes(other));
    setQuery({states: next.join(",") === AT_FIRST ? "" : next.join(",") || "none"});
  };
  const rows = states.length > 0 ? list.value?.items : [];
  const isOpen = useOpenRounds(population, rights.isOperator && (rows ?? []).some(isRequeuable));
  const columns = rights.isOperator ? [...COLUMNS, {name: "Action", class: "num act", cell: (task: TaskJson) => (
    <TaskAction task={task} isOpen={isOpen(task.round!)} done={list.refresh}/>)}] : COLUMNS;
  return <>
    <h1>Queue</h1>
    <QueueFigures population={population}/>
    <Section title="Live rounds">
      <Missing live={running} what="the live rounds"/>
      {running.value && (running.value.items.length > 0
        ? <RoundsTable label="Live rounds" rows={running.value.items} onEnd={running.more} hasMore={Boolean(running.value.next)}
                       action={rights.isOperator ? (row) => <CancelAction round={row.id} done={running.refresh}/> : undefined}/>
        : <p class="dim">No round goes on.</p>)}
    </Section>
    <Section title="Tasks" aside={rows && <span class="dim" role="status">{plural(rows.length, "task")}{list.value?.next && " or more"}</span>}>
      <div class="filters" role="group" aria-label="Which tasks">
        {STATES.map((state) => <button key={state} aria-pressed={states.includes(state)} onClick={() => toggle(state)}>{stateName(state).toLowerCase()}</button>)}
        <TextFilter name="round" label="Round"/><TextFilter name="worker" label="Worker"/>
      </div>
      <Missing live={list} what="the tasks"/>
      {rows && (rows.length > 0
        ? <Table name={rights.isOperator ? "tasks t-acts" : "tasks"} label="Tasks" rows={rows} columns={columns} idOf={(task) => task.id!} onEnd={list.more} hasMore={Boolean(list.value?.next)}/>
        : <p class="dim">No task is like that.</p>)}
    </Section>
  </>;
}
