// TaskStrip: the tasks of a round, a cell each in the order of their indexes; below, the one that is chosen.
//
// All cells of a state are one path: ten thousand are six elements. A link may say which is chosen at first: "?task=17".
import type {AttemptJson, TaskJson} from "../../gen/sheaf/v1/task_pb.js";
import {client} from "../live/session.js";
import {linkTo, place} from "../live/location.js";
import {useLive} from "../live/use_live.js";
import {useScrub} from "../live/use_scrub.js";
import {useWidth} from "../live/use_width.js";
import {age, at, bytes, count, duration, int, plural, seconds} from "../text/format.js";
import {Missing, State, stateName} from "./basics.js";
import {TaskLink} from "./carried.js";
import {TaskAction} from "./task_action.js";

const STATES = ["QUEUED", "LEASED", "TASK_SUCCEEDED", "TASK_FAILED", "BURIED", "TASK_CANCELLED"];
const TIMINGS = ["download", "prepare", "compute", "upload"] as const;

function sizeOf(tasks: number): number {
  return tasks <= 300 ? 14 : tasks <= 2000 ? 9 : 6;
}

/** The square of cell i, in a strip of so many columns, as a part of a path. */
export function squareAt(i: number, columns: number, size: number): string {
  const side = size - (size > 6 ? 2 : 1);
  return `M${i % columns * size} ${Math.floor(i / columns) * size}h${side}v${side}h${-side}z`;
}

function Attempt({attempt}: {attempt: AttemptJson}) {
  const took = ((isNaN(at(attempt.endTime)) ? Date.now() : at(attempt.endTime)) - at(attempt.leaseTime)) / 1000;
  const times = TIMINGS.filter((name) => seconds(attempt.timings?.[name]) > 0).map((name) => `${name} ${duration(seconds(attempt.timings?.[name]))}`);
  return <li>
    <State of={attempt.outcome ?? "RUNNING"}/> {attempt.worker}, {duration(took)}
    {times.length > 0 && <span class="dim"> ({times.join(", ")})</span>}
    {int(attempt.bytesUp) > 0 && `, ${bytes(int(attempt.bytesUp))} up`}
    {attempt.error && <div class={attempt.outcome === "ATTEMPT_CANCELLED" ? "dim" : "problem"}>{attempt.error}</div>}
  </li>;
}

interface Around {
  /** The round hands out tasks. */
  isOpen: boolean;
  isOperator: boolean;
  refresh: () => void;
}

function TaskDetail({task, isOpen, isOperator, refresh}: Around & {task: TaskJson}) {
  const live = useLive((signal) => client.call("InspectionService/GetTask", {task: task.id}, signal), ["task", task.id, task.state, task.numAttempts], 5000);
  const attempts = live.value?.task?.attempts ?? [];
  return <div class="detail">
    <p>
      <span class="id">{task.id}</span> <State of={task.state}/>
      {task.dataSelector && <> of <span>{task.dataSelector}</span></>}
      {task.worker && <>, <a href={linkTo("workers", "", {name: task.worker})}>{task.worker}</a></>}
      {task.createTime && <span class="dim">, {age(task.createTime)} old</span>} {isOperator && <TaskAction key={task.id} task={task} isOpen={isOpen} done={refresh}/>}
    </p>
    {task.origin && <p>Carried over from <TaskLink id={task.origin}/>, through {plural(task.staleness ?? 0, "round")}.</p>}
    {task.carriedTo && <p>It goes on as <TaskLink id={task.carriedTo}/>.</p>}
    <Missing live={live} what="the attempts"/>
    {attempts.length > 0 && <ol aria-label="Attempts">{attempts.map((attempt) => <Attempt key={attempt.number} attempt={attempt}/>)}</ol>}
  </div>;
}

export function TaskStrip({tasks, ...around}: Around & {tasks: TaskJson[]}) {
  const [frame, width] = useWidth();
  const size = sizeOf(tasks.length);
  const columns = Math.max(1, Math.floor((width || 600) / size));
  const rows = Math.ceil(tasks.length / columns);
  const textOf = (i: number) => `task ${tasks[i]!.index ?? 0}: ${stateName(tasks[i]!.state).toLowerCase()}${tasks[i]!.worker ? `, ${tasks[i]!.worker}` : ""}`;
  const wanted = place.value.query.get("task");
  const scrub = useScrub(tasks.length, textOf, "Tasks, by index", (x, y) => (
    x < columns * size ? Math.floor(y / size) * columns + Math.floor(x / size) : -1),
    () => wanted === null ? -1 : tasks.findIndex(({index = 0}) => String(index) === wanted));
  const paths = new Map<string, string>();
  tasks.forEach((task, i) => paths.set(task.state!, (paths.get(task.state!) ?? "") + squareAt(i, columns, size)));
  return <>
    <ul class="legend">{STATES.filter((state) => paths.has(state)).map((state) => (
      <li key={state}><i class={`s-${state}`}/>{stateName(state).toLowerCase()} {count(tasks.filter((task) => task.state === state).length)}</li>))}</ul>
    <div class="strip" ref={frame}>
      <div {...scrub.props} style={{width: `${columns * size}px`, height: `${rows * size}px`}}>
        <svg width={columns * size} height={rows * size} aria-hidden="true">
          {STATES.map((state) => paths.has(state) && <path key={state} class={`s-${state}`} d={paths.get(state)}/>)}
          {scrub.index !== null && <path class="chosen" d={squareAt(scrub.index, columns, size)}/>}
        </svg>
      </div>
    </div>
    {scrub.index === null ? <p class="dim">Choose a task, with the pointer or the arrow keys, to see its attempts.</p>
      : <TaskDetail task={tasks[scrub.index]!} {...around}/>}
  </>;
}
