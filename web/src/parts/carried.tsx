// Carried: what a round took over from those before it, and what of it went on in the next.
import type {RoundJson} from "../../gen/sheaf/v1/round_pb.js";
import type {TaskJson} from "../../gen/sheaf/v1/task_pb.js";
import {linkTo} from "../live/location.js";
import {count, metric, percent, plural} from "../text/format.js";
import {carriedOn, placeOf, stalenessOf, stalenessText} from "../text/policies.js";
import {Bar, Section} from "./basics.js";

function RoundLink({id}: {id: string}) {
  return <a class="id" href={linkTo("rounds", id)}>{id}</a>;
}

/** To the task's detail, on the page of its round. */
export function TaskLink({id}: {id: string}) {
  const {round, index} = placeOf(id);
  return <a class="id" href={linkTo("rounds", round, {task: index})}>{id}</a>;
}

function StalenessTable({round}: {round: RoundJson}) {
  const rows = stalenessOf(round);
  const all = rows.reduce((sum, {contributions}) => sum + contributions, 0);
  const isDiscounted = rows.some(({weight}) => weight !== 1);
  if (all === 0) return <p class="dim">No contribution was accepted yet.</p>;
  return <table class="staleness" aria-label="Accepted contributions by their staleness">
    <thead><tr><th scope="col">Contributions</th><th scope="col" class="num">Accepted</th><th scope="col">Share</th>{isDiscounted && <th scope="col" class="num">Each weighs</th>}</tr></thead>
    <tbody>{rows.map(({rounds, contributions, weight}) => <tr key={rounds}>
      <th scope="row">{stalenessText(rounds)}</th><td class="num">{count(contributions)}</td>
      <td class="share"><Bar share={contributions / all} label={percent(contributions / all)}/></td>
      {isDiscounted && <td class="num">{metric(Number(weight.toPrecision(3)))}</td>}
    </tr>)}</tbody>
  </table>;
}

/** Nothing of a round that neither continues one nor was continued. */
export function Carried({round, tasks}: {round: RoundJson; tasks: TaskJson[]}) {
  const {continues, staleness} = round.spec ?? {};
  const next = carriedOn(tasks);
  const came = tasks.filter(({origin}) => origin).length;
  if (!continues && next === null) return null;
  return <Section title="Carried over">
    {continues && <>
      <p>It continues <RoundLink id={continues}/>, from which {plural(came, "task")} came over. A task goes on through {plural(staleness?.max || 10, "round")} at the most.</p>
      <StalenessTable round={round}/>
    </>}
    {next && <p>{plural(next.tasks, "task")} went on in <RoundLink id={next.round}/>: {next.tasks === 1 ? "it" : "they"} still ran when this round was sealed.</p>}
  </Section>;
}
