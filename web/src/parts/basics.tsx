// What every page is made of: states as words with a colour, figures, notices, bars.
import type {ComponentChildren} from "preact";
import {useLayoutEffect, useRef, useState} from "preact/hooks";

import {CallError} from "../api/client.js";
import {note} from "../live/session.js";
import type {Live} from "../live/use_live.js";
import {sentence} from "../text/format.js";

// By the name of the state, without the prefix that protobuf needs.
const TONES: Record<string, string> = {
  COLLECTING: "busy", SEALING: "busy", LEASED: "busy", RUNNING: "busy", DRAINING: "busy", DRAINED: "busy", SUCCEEDED: "good", WORKING: "good",
  FAILED: "bad", BURIED: "bad", LOST: "bad", CANCELLED: "dim", AWAY: "dim",
};

export function stateName(state: string | undefined): string {
  return (state ?? "–").replace(/^(TASK|ATTEMPT)_/, "").replace("OUTCOME_UNSPECIFIED", "RUNNING");
}

export function State({of}: {of: string | undefined}) {
  const name = stateName(of);
  return <span class={`state ${TONES[name] ?? ""}`}>{name.toLowerCase()}</span>;
}

export function Figure({name, children, tone = "", note: small}: {name: string; children: ComponentChildren; tone?: string; note?: ComponentChildren}) {
  return <div class={`figure ${tone}`}><dt>{name}</dt><dd>{children}{small && <small>{small}</small>}</dd></div>;
}

export function Section({title, aside, children, id}: {title: string; aside?: ComponentChildren; children: ComponentChildren; id?: string}) {
  return <section class="card" id={id} aria-label={title}><header><h2>{title}</h2>{aside}</header>{children}</section>;
}

export function Fields({rows}: {rows: (readonly [string, ComponentChildren] | false | undefined | "" | null)[]}) {
  return <dl class="fields">{rows.map((row) => row && <div key={row[0]}><dt>{row[0]}</dt><dd>{row[1]}</dd></div>)}</dl>;
}

export function Notice({tone = "", title, children}: {tone?: string; title: string; children?: ComponentChildren}) {
  return <div class={`notice ${tone}`} role={tone === "bad" ? "alert" : undefined}><strong>{title}</strong>{children && <div>{children}</div>}</div>;
}

/** What a page shows in place of what it has not: why, and what to do. Nothing if there is a value, however old. */
export function Missing({live, what}: {live: Live<unknown>; what: string}) {
  const {error, value, refresh} = live;
  if (error === undefined) return value === undefined ? <p class="dim" role="status">Loading {what}…</p> : null;
  // Above the page it says so already.
  if (error.code === "unavailable" || error.code === "unauthenticated") return null;
  const hint = error.code === "permission_denied"
    ? "Choose a population that your token is for, or sign in with another token."
    : error.code === "not_found" ? "It may have ended long ago: the server keeps the newest rounds (ended_rounds_max)." : "";
  return <Notice tone="bad" title={error.code === "permission_denied" ? `You may not look at ${what}` : `There is no answer about ${what}`}>
    <p>{sentence(error.message)} {hint}</p><button onClick={refresh}>Try again</button>
  </Notice>;
}

/** Shares of a whole, side by side. */
export function Stack({parts, label}: {parts: {name: string; value: number; text: string}[]; label: string}) {
  const all = parts.reduce((sum, {value}) => sum + value, 0) || 1;
  let x = 0;
  return <svg class="stack" viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label={label}>
    {parts.map(({name, value, text}) => {
      const begin = x;
      x += value / all * 1000;
      return <rect key={name} class={`c-${name}`} x={begin} width={Math.max(0, x - begin)} height="10"><title>{`${name} ${text}`}</title></rect>;
    })}
  </svg>;
}

export function Bar({share, label, tone = ""}: {share: number; label: string; tone?: string}) {
  const width = Math.max(0, Math.min(1, share || 0)) * 100;
  return <svg class={`bar ${tone}`} viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label={label}>
    <rect class="track" width="100" height="4"/><rect class="fill" width={width} height="4"/>
  </svg>;
}

/** A line of values, oldest first. What it says stands beside it in words. */
export function Spark({values, wide = false}: {values: number[]; wide?: boolean}) {
  const finite = values.filter(isFinite);
  if (finite.length < 2) return <span class="spark none" aria-hidden="true"/>;
  const low = Math.min(...finite);
  const span = Math.max(...finite) - low || 1;
  const last = values.length - 1;
  const y = (value: number) => 22 - (value - low) / span * 20;
  const points = values.map((value, i) => isFinite(value) ? `${(i / last * 96 + 2).toFixed(1)},${y(value).toFixed(1)}` : "").join(" ");
  return <svg class={`spark ${wide ? "wide" : ""}`} viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true">
    <polyline points={points}/>
  </svg>;
}

/**
 * Does something on the server. It asks first if `question` is set, and says beside itself what went wrong: also after that it is
 * not offered any more.
 */
export function Action({name, label, question, isOffered = true, act}: {
  name: string; label?: string; question?: string; isOffered?: boolean; act: () => Promise<void>;
}) {
  const [phase, setPhase] = useState<"" | "asking" | "running">("");
  const [problem, setProblem] = useState("");
  const button = useRef<HTMLButtonElement>(null);
  const isFirst = useRef(true);
  useLayoutEffect(() => {
    // The button that was pressed made way for another: whoever has only keys goes on there, unless they are elsewhere already.
    if (!isFirst.current && document.activeElement === document.body) button.current?.focus();
    isFirst.current = false;
  }, [phase]);
  const run = async () => {
    setPhase("running");
    setProblem("");
    try {
      await act();
    } catch (error) {
      if (error instanceof CallError) note(error);
      setProblem(sentence((error as Error).message));
    }
    setPhase("");
  };
  if (!isOffered && phase === "" && problem === "") return null;
  return <span class="action">
    {phase === "asking"
      ? <span class="asking" role="group" aria-label={question}>
          {question} <span class="answers"><button class="danger" ref={button} onClick={run}>Yes, {name.toLowerCase()}</button> <button onClick={() => setPhase("")}>No</button></span>
        </span>
      : (isOffered || phase === "running") && <button ref={button} aria-label={label} disabled={phase === "running"} onClick={() => question ? setPhase("asking") : void run()}>{name}</button>}
    {problem && <span class="problem" role="alert">{problem}</span>}
  </span>;
}

