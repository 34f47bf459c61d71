// What goes on, on one screen.
import type {GetServerInfoResponseJson} from "../../gen/sheaf/v1/inspection_service_pb.js";
import {Fields, Missing, Notice, Section} from "../parts/basics.js";
import {ServerCommands} from "../parts/commands.js";
import {QueueFigures} from "../parts/queue_figures.js";
import {RoundsTable} from "../parts/rounds_table.js";
import {linkTo} from "../live/location.js";
import {fetchRounds, isLive, LIVE_STATES} from "../live/rounds.js";
import {type Live, useLive} from "../live/use_live.js";
import {age, at, count, duration} from "../text/format.js";

const SHOWN = 10;
const CERTIFICATE_DAYS = 14;

export function NoRounds({population}: {population: string}) {
  return <Notice title={`The population ${population} has no rounds yet`}>
    <p>A program creates rounds, and workers compute their tasks. To see some:</p>
    <ServerCommands commands={["sheaf round create -f round.json --wait", "sheaf-worker"]} population={population}/>
    <p>The guide “Write a program” has a first one in Python.</p>
  </Notice>;
}

function ServerNotices({info}: {info: GetServerInfoResponseJson}) {
  const days = (at(info.certificateExpireTime) - Date.now()) / 86_400_000;
  return <>
    {info.isDraining && <Notice tone="warn" title="The server is stopping">It grants no leases any more.</Notice>}
    {info.certificateProblem && <Notice tone="bad" title="A renewed certificate is not shown">{info.certificateProblem}</Notice>}
    {days < CERTIFICATE_DAYS && <Notice tone="warn" title={days < 0 ? "The certificate has expired" : `The certificate expires in ${duration(days * 86400)}`}>
      Renew the file: the server reads it again by itself.
    </Notice>}
  </>;
}

export function Overview({population, info}: {population: string; info: Live<GetServerInfoResponseJson>}) {
  const running = useLive((signal) => fetchRounds(population, "", LIVE_STATES)("", SHOWN, signal), ["live rounds", population]);
  const recent = useLive((signal) => fetchRounds(population, "", [])("", 3 * SHOWN, signal), ["recent rounds", population]);
  const ended = (recent.value?.items ?? []).filter((round) => !isLive(round)).slice(0, SHOWN);
  const server = info.value;
  return <>
    <h1>Overview</h1>
    {server && <ServerNotices info={server}/>}
    <QueueFigures population={population}/>
    <Section title="Live rounds" aside={running.value?.next && <a href={linkTo("rounds", "", {state: "live"})}>All live rounds</a>}>
      <Missing live={running} what="the live rounds"/>
      {running.value && (running.value.items.length > 0
        ? <RoundsTable label="Live rounds" rows={running.value.items}/>
        : recent.value?.items.length === 0 ? <NoRounds population={population}/> : <p class="dim">No round goes on.</p>)}
    </Section>
    {ended.length > 0 && <Section title="Ended lately" aside={<a href={linkTo("rounds")}>All rounds</a>}>
      <RoundsTable label="Rounds that ended lately" rows={ended}/>
    </Section>}
    {server && <Section title="Server">
      <Fields rows={[
        ["Version", server.version], ["Up for", age(server.startTime)],
        // One in memory has no directory, although the server may have been given one.
        ["Store", server.store === "memory" || !server.dataDirectory ? server.store : `${server.store}, ${server.dataDirectory}`],
        ["Live rounds, all populations", count(server.numLiveRounds)], ["Workers ever seen", count(server.numWorkers)],
        ["Calls refused because there was too much to do", count(server.numRefusedCalls)],
      ]}/>
    </Section>}
  </>;
}
