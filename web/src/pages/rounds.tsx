// All rounds, newest first; above them what their jobs measured, as lines.
import {Missing, Section, Spark} from "../parts/basics.js";
import {RoundsTable} from "../parts/rounds_table.js";
import {linkTo, place, setQuery} from "../live/location.js";
import {fetchRounds, followRounds, LIVE_STATES, type RoundRow} from "../live/rounds.js";
import {usePages} from "../live/use_pages.js";
import {curvesOf} from "../text/curves.js";
import {metric, plural} from "../text/format.js";
import {NoRounds} from "./overview.js";

const STATES: [string, string, readonly string[]][] = [
  ["", "All", []], ["live", "Live", LIVE_STATES], ["succeeded", "Succeeded", ["SUCCEEDED"]], ["failed", "Failed", ["FAILED"]],
  ["cancelled", "Cancelled", ["CANCELLED"]],
];
const JOBS_SHOWN = 6;
const METRICS_SHOWN = 4;

function Jobs({rounds}: {rounds: RoundRow[]}) {
  const jobs = [...curvesOf(rounds)].slice(0, JOBS_SHOWN);
  if (jobs.length === 0) return null;
  return <ul class="jobs" aria-label="Metrics of the newest jobs">{jobs.map(([job, curves]) => (
    <li key={job} class="card">
      <a href={linkTo("jobs", job)} title={job}>{job}</a>
      <dl>{[...curves].sort(([a], [b]) => a < b ? -1 : 1).slice(0, METRICS_SHOWN).map(([name, values]) => (
        <div key={name}><dt title={name}>{name}</dt><Spark values={values}/><dd>{metric(values.at(-1)!)}</dd></div>
      ))}</dl>
    </li>
  ))}</ul>;
}

export function Rounds({population}: {population: string}) {
  const {query} = place.value;
  const filter = query.get("state") ?? "";
  const [, , states] = STATES.find(([name]) => name === filter) ?? STATES[0]!;
  const list = usePages(fetchRounds(population, "", states), (round) => round.id, ["rounds", population, filter],
    {isNewestFirst: true, follow: filter === "" ? followRounds(population) : undefined});
  const rounds = list.value?.items;
  return <>
    <h1>Rounds</h1>
    <div class="filters" role="group" aria-label="State">
      {STATES.map(([name, label]) => <button key={name} aria-pressed={name === filter} onClick={() => setQuery({state: name})}>{label}</button>)}
      {rounds && <span class="dim" role="status">{list.value?.next ? `the newest ${plural(rounds.length, "round")}` : plural(rounds.length, "round")}</span>}
    </div>
    <Missing live={list} what="the rounds"/>
    {rounds && <Jobs rounds={rounds}/>}
    {rounds && (rounds.length > 0
      ? <Section title="Rounds, newest first"><RoundsTable label="Rounds, newest first" rows={rounds} onEnd={list.more} hasMore={Boolean(list.value?.next)}/></Section>
      : filter === "" ? <NoRounds population={population}/> : <p class="dim">No round is {filter}.</p>)}
  </>;
}
