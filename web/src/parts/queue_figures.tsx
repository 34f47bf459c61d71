// QueueFigures: the queue of a population in figures, and what of them is remarkable in sentences.
import {useRef} from "preact/hooks";

import {client} from "../live/session.js";
import {useLive} from "../live/use_live.js";
import {count, duration, int, plural, seconds} from "../text/format.js";
import {Figure, Missing, Notice, Spark} from "./basics.js";

const SAMPLES_MAX = 60;

function useQueue(population: string) {
  const live = useLive((signal) => client.call("InspectionService/DescribeQueue", {population}, signal), ["queue", population]);
  // Of this tab's time: the server keeps none.
  const rates = useRef<{of: string; last?: unknown; leases: number[]; done: number[]}>({of: "", leases: [], done: []});
  if (rates.current.of !== population) rates.current = {of: population, leases: [], done: []};
  if (live.value !== undefined && live.value !== rates.current.last) {
    const {leases, done} = rates.current;
    leases.push(Number(live.value.leasesPerSecond ?? 0));
    done.push(Number(live.value.completionsPerSecond ?? 0));
    for (const samples of [leases, done]) samples.splice(0, samples.length - SAMPLES_MAX);
    rates.current.last = live.value;
  }
  return {live, ...rates.current};
}

export function QueueFigures({population}: {population: string}) {
  const {live, leases, done} = useQueue(population);
  const queue = live.value;
  if (queue === undefined) return <Missing live={live} what={`the queue of ${population}`}/>;
  const {tasks = {}} = queue;
  const unfit = int(queue.numUnschedulable);
  const delayed = int(queue.numDelayed);
  const lostTasks = int(tasks.failed) + int(tasks.buried);
  const rate = (value: unknown, samples: number[]) => <span class="beside">{Number(value ?? 0).toFixed(1)}<Spark values={samples}/></span>;
  return <>
    <Missing live={live} what={`the queue of ${population}`}/>
    <dl class="figures">
      <Figure name="Live rounds">{count(queue.numLiveRounds)}</Figure>
      <Figure name="Queued"><span class="beside">{count(tasks.queued)}{delayed > 0 && <small title="They wait out a backoff.">{count(delayed)} delayed</small>}</span></Figure>
      <Figure name="Oldest waits">{queue.oldestAge === undefined ? "–" : duration(seconds(queue.oldestAge))}</Figure>
      <Figure name="Leased">{count(tasks.leased)}</Figure>
      <Figure name="Leases/s">{rate(queue.leasesPerSecond, leases)}</Figure>
      <Figure name="Done/s">{rate(queue.completionsPerSecond, done)}</Figure>
      <Figure name="Failed, buried" tone={lostTasks > 0 ? "bad" : ""}>{count(lostTasks)}</Figure>
      <Figure name="Waiting workers">{count(queue.numParkedPolls)}</Figure>
    </dl>
    {unfit > 0 && <Notice tone="warn" title={`${plural(unfit, "queued task")}${queue.numUnschedulableIsPartial ? " or more" : ""} fit no worker seen lately`}>
      Compare what the workers offer with what the rounds require: the explanation of a round says what is missing.
    </Notice>}
  </>;
}
