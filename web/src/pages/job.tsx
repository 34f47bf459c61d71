// The rounds of one program: its metrics, times and bytes as curves.
import {linkTo} from "../live/location.js";
import {fetchRounds, type RoundRow} from "../live/rounds.js";
import {usePages} from "../live/use_pages.js";
import {Missing, Notice, Section} from "../parts/basics.js";
import {Curve} from "../parts/curve.js";
import {RoundsTable} from "../parts/rounds_table.js";
import {bytes, duration, metric, plural} from "../text/format.js";

const CURVES_MAX = 12;

export function Job({name, population}: {name: string; population: string}) {
  const list = usePages(fetchRounds(population, name, []), (round) => round.id, ["job", population, name], {isNewestFirst: true});
  const rounds = list.value?.items;
  const ended = (rounds ?? []).filter((round) => round.state === "SUCCEEDED").reverse();
  const pointsOf = (valueOf: (round: RoundRow) => number) => (
    ended.map((round) => ({label: round.id, value: valueOf(round), href: linkTo("rounds", round.id)})));
  const metrics = [...new Set(ended.flatMap((round) => Object.keys(round.metrics)))].sort();
  return <>
    <h1>Job {name}</h1>
    <Missing live={list} what={`the job ${name}`}/>
    {rounds?.length === 0 && <Notice title={`The population ${population} has no round of the job ${name}`}>It may be another population's, or its rounds ended long ago.</Notice>}
    {ended.length > 0 && <>
      <p class="dim" role="status">Over {plural(ended.length, "round")} that succeeded, oldest first.{list.value?.next && <> There are older ones: <button onClick={list.more}>Show them</button></>}</p>
      <div class="curves">
        {metrics.slice(0, CURVES_MAX).map((of) => <Curve key={of} name={of} points={pointsOf((round) => round.metrics[of] ?? NaN)} textOf={metric}/>)}
        <Curve name="Time of a round" points={pointsOf((round) => (round.end - round.begin) / 1000)} textOf={duration}/>
        <Curve name="Bytes up, each contribution" points={pointsOf((round) => Math.round(round.bytesUp / round.contributions))} textOf={bytes}/>
        <Curve name="Bytes down, each contribution" points={pointsOf((round) => Math.round(round.bytesDown / round.contributions))} textOf={bytes}/>
      </div>
    </>}
    {rounds && rounds.length > 0 && <Section title="Its rounds, newest first">
      <RoundsTable label={`Rounds of ${name}, newest first`} rows={rounds} onEnd={list.more} hasMore={Boolean(list.value?.next)}/>
    </Section>}
  </>;
}
