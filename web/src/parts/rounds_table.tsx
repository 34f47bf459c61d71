// RoundsTable: rounds, one a row. `Progress`, `PhaseStack` and the texts of a round, which other pages have, too.
import type {ComponentChildren} from "preact";

import {linkTo} from "../live/location.js";
import {isLive, PHASES, type RoundRow} from "../live/rounds.js";
import {age, bytes, count, duration, metric, percent} from "../text/format.js";
import {Bar, Stack, State} from "./basics.js";
import {type Column, Table} from "./table.js";

export function Progress({round}: {round: RoundRow}) {
  const text = `${count(round.contributions)}/${count(round.goal)}`;
  return <span class="progress">
    <Bar share={round.contributions / round.goal} label={`${text} contributions`} tone={round.state === "FAILED" ? "bad" : isLive(round) ? "busy" : "good"}/>
    <span>{text}</span>
  </span>;
}

/** "wait 12 %, download 3 %, ..." */
export function phaseText(phases: number[]): string {
  const all = phases.reduce((sum, value) => sum + value, 0) || 1;
  return PHASES.map((name, i) => `${name} ${percent(phases[i]! / all)}`).join(", ");
}

export function PhaseStack({phases}: {phases: number[]}) {
  return <Stack label={phaseText(phases)} parts={PHASES.map((name, i) => ({name, value: phases[i]!, text: duration(phases[i]!)}))}/>;
}

export function took(round: RoundRow, now = Date.now()): string {
  return duration(((isNaN(round.end) ? now : round.end) - round.begin) / 1000);
}

const ROUND: Column<RoundRow> = {name: "Round", class: "main", cell: (round) => <a class="id" href={linkTo("rounds", round.id)}>{round.id}</a>};
const STATE: Column<RoundRow> = {name: "State", cell: (round) => <State of={round.state}/>};
const JOB: Column<RoundRow> = {name: "Job", class: "name", cell: (round) => (
  round.job ? <a href={linkTo("jobs", round.job)} title={round.job}>{round.job}</a> : <span class="dim" title={round.computation}>{round.computation}</span>)};
const CONTRIBUTIONS: Column<RoundRow> = {name: "Contributions", cell: (round) => <Progress round={round}/>};
const TIME: Column<RoundRow> = {name: "Where time went", class: "wide", cell: (round) => round.phases && <PhaseStack phases={round.phases}/>};
const METRIC: Column<RoundRow> = {name: "Metrics", class: "wide name", cell: (round) => {
  const text = Object.entries(round.metrics).sort(([a], [b]) => a < b ? -1 : 1).map(([name, value]) => `${name} ${metric(value)}`).join(", ");
  return <span title={text}>{text}</span>;
}};
const BYTES: Column<RoundRow> = {name: "Up", class: "num wide", cell: (round) => bytes(round.bytesUp)};
const TOOK: Column<RoundRow> = {name: "Took", class: "num", cell: (round) => took(round)};
const AGE: Column<RoundRow> = {name: "Age", class: "num", cell: (round) => age(new Date(round.begin).toISOString())};

export function RoundsTable({rows, label, action, ...rest}: {
  rows: RoundRow[]; label: string; action?: (round: RoundRow) => ComponentChildren; onEnd?: () => void; hasMore?: boolean;
}) {
  const columns = [ROUND, STATE, JOB, CONTRIBUTIONS, TIME, METRIC, BYTES, TOOK, action ? {name: "Action", class: "num act", cell: action} : AGE];
  return <Table name={action ? "rounds t-acts" : "rounds"} label={label} rows={rows} idOf={(round) => round.id} columns={columns} {...rest}/>;
}
