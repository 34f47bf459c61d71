// The frame around the pages: where to go, which population, whether the server answers, who calls.
import {render} from "preact";
import {useEffect, useRef, useState} from "preact/hooks";

import {Notice} from "./parts/basics.js";
import {Commands} from "./parts/commands.js";
import {useCell} from "./live/cell.js";
import {rightsOf} from "./live/rights.js";
import {linkTo, place, population, setQuery} from "./live/location.js";
import {client, isHidden, lost, signIn, signOut, theme, wanted} from "./live/session.js";
import {useLive} from "./live/use_live.js";
import {sentence} from "./text/format.js";
import {Overview} from "./pages/overview.js";
import {Job} from "./pages/job.js";
import {Queue} from "./pages/queue.js";
import {RoundPage} from "./pages/round.js";
import {Rounds} from "./pages/rounds.js";
import {Workers} from "./pages/workers.js";

const PAGES = [["overview", "Overview"], ["rounds", "Rounds"], ["queue", "Queue"], ["workers", "Workers"]] as const;
const INFO_MILLIS = 10_000;

function Login({problem}: {problem: string}) {
  const [token, setToken] = useState("");
  return <main class="login"><form class="card" onSubmit={(event) => {
    event.preventDefault();
    if (token.trim() !== "") signIn(token.trim());
  }}>
    <h1>Sign in</h1>
    <p>This server asks who you are. The token stays in this tab's memory: a page that is loaded again asks for it again.</p>
    <label for="token">Token</label>
    <input id="token" type="password" autocomplete="off" spellcheck={false} value={token} autofocus
           aria-describedby="token-help" onInput={(event) => setToken(event.currentTarget.value)}/>
    {problem && <p class="problem" role="alert">{sentence(problem)}</p>}
    <button class="primary">Sign in</button>
    <p id="token-help" class="dim">An operator makes one that may look and change nothing:</p>
    <Commands lines={["sheaf token create NAME --role viewer --to FILE"]}/>
  </form></main>;
}

function ThemeSwitch() {
  const current = useCell(theme);
  const isDark = current === "" ? matchMedia("(prefers-color-scheme: dark)").matches : current === "dark";
  return <button class="quiet" aria-pressed={isDark} onClick={() => { theme.value = isDark ? "light" : "dark"; }}>Dark</button>;
}

function PopulationField({populations}: {populations: string[]}) {
  const current = population(populations);
  const [text, setText] = useState(current);
  useEffect(() => setText(current), [current]);
  return <form class="population" onSubmit={(event) => {
    event.preventDefault();
    setQuery({population: text.trim() === "default" ? "" : text.trim()});
  }}>
    <label for="population">Population</label>
    <input id="population" list="populations" value={text} size={12} spellcheck={false} autocomplete="off"
           onInput={(event) => setText(event.currentTarget.value)} onChange={(event) => event.currentTarget.form!.requestSubmit()}/>
    <datalist id="populations">{populations.map((name) => <option key={name} value={name}/>)}</datalist>
  </form>;
}

function App() {
  const {page, name} = useCell(place);
  const problem = useCell(wanted);
  const isPaused = useCell(isHidden);
  const isLost = useCell(lost);
  const main = useRef<HTMLElement>(null);
  const info = useLive((signal) => client.call("InspectionService/GetServerInfo", {}, signal), ["info"], INFO_MILLIS);
  const rights = rightsOf(info.value);
  const of = population(rights.populations);
  const label = PAGES.find(([path]) => path === page)?.[1] ?? page;
  useEffect(() => {
    document.title = `${name || label} · Sheaf`;
    scrollTo(0, 0);
  }, [page, name]);
  const head = <header class="top">
    {problem === null && <a class="skip" href="#main" onClick={(event) => {
      // The hash says where one is.
      event.preventDefault();
      main.current?.focus();
    }}>Skip to the page</a>}
    <a class="brand" href={linkTo("overview")}>Sheaf</a>
    {problem === null && <nav aria-label="Pages">{PAGES.map(([path, text]) => (
      <a key={path} href={linkTo(path)} aria-current={page === path ? "page" : page === "jobs" && path === "rounds" ? "true" : undefined}>{text}</a>))}</nav>}
    <span class="aside">
      {problem === null && <PopulationField populations={rights.populations}/>}
      {problem === null && <span class={`pulse ${isLost ? "bad" : isPaused ? "" : "good"}`} role="status">{isLost ? "no answer" : isPaused ? "paused" : "live"}</span>}
      <ThemeSwitch/>
      {client.token !== "" && problem === null && <button class="quiet" onClick={signOut}>Sign out</button>}
    </span>
  </header>;
  if (problem !== null) return <>{head}<Login problem={problem}/></>;
  return <>
    {head}
    <main ref={main} id="main" tabIndex={-1}>
      {isLost && <Notice tone="bad" title="The server does not answer">
        <p>What is shown is what it said last. It is asked again by itself. If this goes on, see whether sheafd runs on {location.host}, and what its log says.</p>
      </Notice>}
      {page === "overview" ? <Overview population={of} info={info}/>
        : page === "rounds" ? (name ? <RoundPage key={name} id={name} rights={rights}/> : <Rounds population={of}/>)
        : page === "jobs" && name ? <Job name={name} population={of}/>
        : page === "queue" ? <Queue population={of} rights={rights}/>
        : page === "workers" ? <Workers population={of} rights={rights}/>
        : <><h1>There is no such page</h1><a href={linkTo("overview")}>To the overview</a></>}
    </main>
  </>;
}

render(<App/>, document.getElementById("app")!);
