// useLive: what the server says, again and again while somebody looks.
//
//   const {value, error} = useLive((signal) => client.call("InspectionService/DescribeQueue", {population}, signal), [population]);
//
// A tab that is hidden asks nothing. After a failure the pauses grow to half a minute; an answer that takes long is asked for less
// often. `load` gets the value before, so that a long poll can say what is known.
import {useEffect, useRef, useState} from "preact/hooks";

import {CallError} from "../api/client.js";
import {useCell} from "./cell.js";
import {isHidden, lost, note, wanted} from "./session.js";

/** In place of a pause: `load` waits at the server until there is something new. */
export const LONG_POLL = 0;

const FAILED_MILLIS_MAX = 30_000;
// Between the answers of a long poll: nobody reads faster.
const ANSWERED_MILLIS = 300;

export interface Live<T> {
  value?: T;
  /** Of the last call; the value, if there is one, is older. */
  error?: CallError;
  /** Asks at once. */
  refresh: () => void;
}

export function useLive<T>(load: (signal: AbortSignal, last?: T) => Promise<T>, key: unknown[], pauseMillis = 2000): Live<T> {
  const [live, setLive] = useState<{value?: T; error?: CallError; of: string}>({of: ""});
  const isPaused = useCell(isHidden);
  const isShut = useCell(wanted) !== null;
  const last = useRef<{value?: T; of: string}>({of: ""});
  const again = useRef(() => {});
  const of = JSON.stringify(key);
  useEffect(() => {
    if (isPaused || isShut) return;
    const ending = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let failures = 0;
    let isRunning = false;
    const run = async () => {
      if (isRunning) return;
      clearTimeout(timer);
      isRunning = true;
      const begin = Date.now();
      let pause = pauseMillis;
      try {
        const value = await load(ending.signal, last.current.of === of ? last.current.value : undefined);
        if (ending.signal.aborted) return;
        last.current = {value, of};
        failures = 0;
        lost.value = null;
        setLive({value, of});
      } catch (error) {
        if (ending.signal.aborted) return;
        const failure = error instanceof CallError ? error : new CallError("internal", String(error));
        note(failure);
        setLive((before) => ({value: before.of === of ? before.value : undefined, error: failure, of}));
        pause = Math.min(FAILED_MILLIS_MAX, 1000 * 2 ** failures++);
      }
      isRunning = false;
      // What takes the server long is asked for less often.
      timer = setTimeout(run, pauseMillis === LONG_POLL ? Math.max(pause, ANSWERED_MILLIS) : Math.max(pause, 4 * (Date.now() - begin)));
    };
    again.current = run;
    run();
    return () => {
      ending.abort();
      clearTimeout(timer);
    };
  }, [of, isPaused, isShut]);
  const refresh = () => again.current();
  return live.of === of ? {value: live.value, error: live.error, refresh} : {refresh};
}
