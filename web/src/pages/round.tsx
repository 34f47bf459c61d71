// One round: how far it is, where its time went, its tasks, how sparse it is, what it measured and released.
import {useRef} from "preact/hooks";

import type {FoldCountersJson, OutputSpecJson} from "../../gen/sheaf/v1/aggregation_pb.js";
import type {RoundJson} from "../../gen/sheaf/v1/round_pb.js";
import type {TaskJson} from "../../gen/sheaf/v1/task_pb.js";
import type {Rights} from "../live/rights.js";
import {linkTo} from "../live/location.js";
import {fetchRounds, isLive, isOpen, numTasks, PHASES, phasesOf, rowOf} from "../live/rounds.js";
import {client} from "../live/session.js";
import {LONG_POLL, useLive} from "../live/use_live.js";
import {Action, Bar, Fields, Figure, Missing, Notice, Section, Spark, State} from "../parts/basics.js";
import {Carried} from "../parts/carried.js";
import {Code} from "../parts/commands.js";
import {PhaseStack, Progress, took} from "../parts/rounds_table.js";
import {CancelAction} from "../parts/task_action.js";
import {TaskStrip} from "../parts/task_strip.js";
import {coordinatesOf, denseBytesOf, isKeyed, isSparse} from "../text/density.js";
import {age, at, bytes, count, duration, int, metric, percent, plural} from "../text/format.js";
import {stragglerTexts} from "../text/policies.js";

const WAIT = "25s";
const TASKS_MAX = 10_000;
const TASK_PAGE = 1000;
const ENDED_MILLIS = 60_000;
const EARLIER_MAX = 100;

async function allTasks(population: string, round: string, signal: AbortSignal): Promise<TaskJson[]> {
  const tasks: TaskJson[] = [];
  for (let pageToken = ""; tasks.length < TASKS_MAX;) {
    const page = await client.call("InspectionService/ListTasks", {population, round, pageSize: TASK_PAGE, pageToken}, signal);
    tasks.push(...page.tasks ?? []);
    pageToken = page.nextPageToken ?? "";
    if (pageToken === "") break;
  }
  return tasks;
}

/** Has the browser save the file: a link would not show the token. */
async function saveResult(round: string): Promise<void> {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await client.aggregate(round));
  link.download = `${round}.safetensors`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), ENDED_MILLIS);
}

/** Of what only rounds that succeeded have: that it comes, or that it never will. */
function NotYet({round, what}: {round: RoundJson; what: string}) {
  if (isLive(round)) return <p class="dim">{what} known when the round has succeeded.</p>;
  return <p class="dim">{what} known of rounds that succeeded; this one {round.state === "CANCELLED" ? "was cancelled" : "failed"}.</p>;
}

function Phases({round}: {round: RoundJson}) {
  const phases = phasesOf(round.phases);
  if (phases === null) return <NotYet round={round} what="It is"/>;
  const all = phases.reduce((sum, value) => sum + value, 0) || 1;
  return <>
    <div class="phases"><PhaseStack phases={phases}/></div>
    <dl class="key">{PHASES.map((name, i) => (
      <div key={name}><dt><i class={`c-${name}`}/>{name}</dt><dd>{duration(phases[i]!)} <small>{percent(phases[i]! / all)}</small></dd></div>))}
    </dl>
  </>;
}

/** Of the rows that contributions brought, how many were new, in the order in which they were folded. */
function Growth({fold, touched, unit}: {fold: FoldCountersJson; touched: number; unit: string}) {
  const [contributions, rows] = [int(fold.contributions), int(fold.rows)];
  const growth = (fold.growth ?? []).map((size) => [int(size.contributions), int(size.touched)] as const);
  const points = [[0, 0] as const, ...growth, [contributions, touched] as const].map(([x, y]) => `${(x / contributions * 100).toFixed(2)},${(40 - y / rows * 40).toFixed(2)}`);
  return <figure class="growth">
    {growth.length > 0 && <svg viewBox="0 0 100 40" preserveAspectRatio="none" aria-hidden="true">
      <line x1="0" y1="40" x2="100" y2="0"/><polygon points={`${points.join(" ")} 100,40`}/><polyline points={points.join(" ")}/>
    </svg>}
    <figcaption>{count(Math.round(rows / contributions))} {unit} each, {count(rows)} in all; <b>{count(touched)}</b> different ones ({percent(touched / rows)})
      {growth.length > 0 && <small>Blue: the different ones as {plural(contributions, "contribution")} came. The line: if none had been in two.</small>}
    </figcaption>
  </figure>;
}

function Touched({output, round}: {output: OutputSpecJson; round: RoundJson}) {
  const summary = round.aggregate?.outputs?.find(({name}) => name === output.name);
  const fold = round.aggregate?.folds?.find((counters) => counters.output === output.name);
  const of = isKeyed(output) ? 0 : coordinatesOf(output);
  const touched = int(summary?.touched);
  const unit = isKeyed(output) ? "keys" : (output.denseShape?.length ?? 0) > 1 && of < int(output.denseShape![0]) * int(output.denseShape![1]) ? "rows" : "coordinates";
  return <><div class="touched">
    <span class="name" title={output.name}>{output.name} <small>{output.operator}</small></span>
    {summary === undefined ? <span class="dim">{of > 0 ? `${count(of)} ${unit}` : "open keys"}</span>
      : <>{of > 0 && <Bar share={touched / of} label={`${count(touched)} of ${count(of)} ${unit} touched`}/>}
        <span>{of > 0 ? `${count(touched)} of ${count(of)} ${unit} (${percent(touched / of)})` : `${count(touched)} ${unit}`} touched{int(summary.released) !== touched && `, ${count(summary.released)} released`}</span></>}
  </div>{fold && int(fold.rows) > 0 && touched > 0 && <Growth fold={fold} touched={touched} unit={unit}/>}</>;
}

function Sparsity({round}: {round: RoundJson}) {
  const outputs = round.spec?.aggregate?.outputs ?? [];
  const contributions = int(round.numContributions);
  const [up, down] = [int(round.bytesUp), int(round.bytesDown)];
  const dense = denseBytesOf(outputs);
  const each = up / contributions;
  return <>
    <dl class="figures">
      <Figure name="Up, each contribution" note={`${bytes(up)} in all`}>{contributions > 0 ? bytes(Math.round(each)) : "–"}</Figure>
      <Figure name="As dense tensors" note={dense !== null && contributions > 0 && `${bytes(dense * contributions)} in all`}>{dense === null ? "–" : bytes(dense)}</Figure>
      <Figure name="Sent of dense" note={dense !== null && up > 0 && up < dense * contributions && `${metric(Number((dense / each).toPrecision(2)))} times less`}>
        {dense !== null && contributions > 0 && dense > 0 ? percent(each / dense) : "–"}
      </Figure>
      <Figure name="Down, each contribution" note={`${bytes(down)} in all`}>{contributions > 0 ? bytes(Math.round(down / contributions)) : "–"}</Figure>
    </dl>
    {outputs.filter((output) => isSparse(output) || isKeyed(output)).map((output) => <Touched key={output.name} output={output} round={round}/>)}
  </>;
}

function Metrics({round, population}: {round: RoundJson; population: string}) {
  const job = round.spec?.job ?? "";
  const names = Object.keys(round.metrics ?? {}).sort();
  const earlier = useLive(async (signal) => job === "" ? [] : (await fetchRounds(population, job, ["SUCCEEDED"])("", EARLIER_MAX, signal)).items,
    ["earlier", population, job], ENDED_MILLIS);
  if (names.length === 0 && round.state === "SUCCEEDED") return <p class="dim">Its contributions carried none.</p>;
  if (names.length === 0) return <NotYet round={round} what="They are"/>;
  const until = (earlier.value ?? []).filter(({begin}) => begin <= at(round.createTime)).reverse();
  return <>
    <dl class="metrics">{names.map((name) => (
      <div key={name}><dt title={name}>{name}</dt><Spark values={until.map(({metrics}) => metrics[name] ?? NaN)} wide/><dd>{metric(Number(round.metrics![name]))}</dd></div>))}
    </dl>
    {until.length > 1 && <p class="dim">The lines are those of {plural(until.length, "round")} of the job, up to this one.</p>}
  </>;
}

function Outputs({round}: {round: RoundJson}) {
  const outputs = round.spec?.aggregate?.outputs ?? [];
  // On a narrow screen a row is a block, and what a number is stands before it. Not every browser takes that for a table unless it is told.
  return <div class="scroll" tabIndex={0} role="group" aria-label="What was asked for and released"><table role="table" class="outputs">
    <thead role="rowgroup"><tr role="row">{["Output", "Operator", "Type", "Touched", "Released", "Divided by"].map((name) => (
      <th key={name} role="columnheader" scope="col" class={["Touched", "Released"].includes(name) ? "num" : undefined}>{name}</th>))}</tr></thead>
    <tbody role="rowgroup">{outputs.map((output) => {
      const summary = round.aggregate?.outputs?.find(({name}) => name === output.name);
      return <tr key={output.name} role="row">
        <th role="rowheader" scope="row">{output.name}</th><td role="cell">{output.operator}</td>
        <td role="cell" class="type">{output.dtype?.toLowerCase()} [{(output.denseShape ?? []).join(", ")}]</td>
        <td role="cell" class="num" data-name="Touched">{summary && count(summary.touched)}</td>
        <td role="cell" class="num" data-name="Released">{summary && count(summary.released)}</td>
        <td role="cell" class="divisor" data-name="Divided by">{summary?.divisor}{summary?.divisorValue ? ` (${summary.divisorValue})` : ""}</td>
      </tr>;
    })}</tbody>
  </table></div>;
}

export function RoundPage({id, rights}: {id: string; rights: Rights}) {
  const live = useLive(async (signal, last?: RoundJson) => {
    const {round} = await client.call("RoundService/GetRound", {round: id, ...(last && {etag: last.etag, wait: WAIT})}, signal);
    return round!;
  }, ["round", id], LONG_POLL);
  const round = live.value;
  const goesOn = round !== undefined && isLive(round);
  const population = round?.spec?.population || "default";
  const explained = useLive((signal) => client.call("InspectionService/ExplainRound", {round: id}, signal), ["explain", id, round?.state], goesOn ? 5000 : ENDED_MILLIS);
  const tasks = useLive(async (signal) => round === undefined ? [] : allTasks(population, id, signal), ["tasks", id, population, round?.state], goesOn ? 2000 : ENDED_MILLIS);
  const shown = useRef<TaskJson[]>([]);
  if (tasks.value) shown.current = tasks.value;
  if (round === undefined) return <><h1>Round {id}</h1><Missing live={live} what={`the round ${id}`}/></>;
  const row = rowOf(round);
  const spec = round.spec ?? {};
  const isOperator = rights.isOperator;
  const isAnnounced = round.state === "ANNOUNCED";
  const left = duration(Math.max(0, at(round.deadlineTime) - Date.now()) / 1000);
  const stragglers = stragglerTexts(spec.straggler);
  const isForRelays = round.spec?.release === "PARTIAL_AGGREGATE";
  const refresh = () => {
    tasks.refresh();
    explained.refresh();
  };
  return <>
    <div class="title">
      <h1><span class="id">{id}</span> <State of={round.state}/></h1>
      <span>{goesOn && isOperator && <CancelAction round={id} done={refresh}/>}
        {round.state === "SUCCEEDED" && (isForRelays ? <span class="dim">What it released is for the relay that made it.</span>
          : rights.isSubmitter ? <Action name="Download the result" act={() => saveResult(id)}/>
          : <span class="dim">Its result is for submitters.</span>)}</span>
    </div>
    <Missing live={live} what={`the round ${id}`}/>
    {round.error && <Notice tone="bad" title={round.state === "CANCELLED" ? "It was cancelled" : "It failed"}>{round.error}</Notice>}
    <dl class="figures">
      <Figure name="Contributions" note={<Progress round={row}/>}>{count(row.contributions)}</Figure>
      <Figure name="Clients">{count(row.clients)}</Figure>
      <Figure name={isAnnounced ? "Announced for" : goesOn ? "Running for" : "Took"} note={goesOn && (isAnnounced ? `fails in ${left} unless it is opened` : `ends at the latest in ${left}`)}>{took(row)}</Figure>
      <Figure name="Attempts failed" tone={int(round.numFailedAttempts) > 0 ? "bad" : ""}>{count(round.numFailedAttempts)}</Figure>
      <Figure name="Attempts lost" tone={int(round.numLostAttempts) > 0 ? "bad" : ""}>{count(round.numLostAttempts)}</Figure>
    </dl>
    <div class="columns">
      <div>
        <Section title="Where the time went"><Phases round={round}/></Section>
        <Section title="Tasks" aside={numTasks(round.tasks) > TASKS_MAX && <span class="dim">the first {count(TASKS_MAX)} of {count(numTasks(round.tasks))}</span>}>
          <Missing live={tasks} what="the tasks"/>
          {shown.current.length > 0 && <TaskStrip tasks={shown.current} isOpen={isOpen(round)} isOperator={isOperator} refresh={refresh}/>}
        </Section>
        <Carried round={round} tasks={shown.current}/>
        <Section title="Bytes, and how sparse it is"><Sparsity round={round}/></Section>
      </div>
      <div>
        <Section title="Explanation">
          <Missing live={explained} what="the explanation"/>
          {explained.value && <>
            <p>{explained.value.summary}</p>
            {explained.value.reasons && <ul class="list">{explained.value.reasons.map((text) => <li key={text}>{text}</li>)}</ul>}
            {explained.value.hints?.map((text) => <p key={text} class="hint">{text.split("`").map((part, i) => i % 2 === 1 ? <Code key={i} text={part}/> : part)}</p>)}
          </>}
        </Section>
        <Section title="Metrics, means over clients" aside={spec.job && <a href={linkTo("jobs", spec.job)}>Curves</a>}><Metrics round={round} population={population}/></Section>
        <Section title="The round">
          <Fields rows={[
            spec.job && ["Job", <a href={linkTo("jobs", spec.job)}>{spec.job}</a>], ["Population", population],
            ["Computation", `${spec.computation?.name}${spec.computation?.versionMin ? `, version ${spec.computation.versionMin} or newer` : ""}`],
            ["Created", <time dateTime={round.createTime}>{age(round.createTime)} ago</time>],
            spec.announced && ["Announced", isAnnounced ? "its broadcast comes when it is opened" : "before its broadcast was known"],
            ["Priority", spec.priority || 3], ["Durability", spec.durability === "EPHEMERAL" ? "ephemeral" : "durable"],
            int(spec.minClients) > 1 && ["Clients at the least", count(spec.minClients)],
            stragglers.length > 0 && ["Stragglers", <span class="sentences">{stragglers.join(" ")}</span>],
            int(round.numSpeculativeWins) > 0 && ["Speculation", `${count(round.numSpeculativeWins)} accepted from a second attempt while the first still ran`],
            spec.broadcastDigest && ["Broadcast", <span class="digest">{spec.broadcastDigest}</span>],
            round.aggregate && [isForRelays ? "Partial aggregate" : "Result", <>{bytes(int(round.aggregate.sizeBytes))}, sha256 <span class="digest">{round.aggregate.digest}</span></>],
          ]}/>
        </Section>
      </div>
    </div>
    <Section title="Outputs"><Outputs round={round}/></Section>
  </>;
}
