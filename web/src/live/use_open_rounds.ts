// useOpenRounds: which rounds of a population are open, asked for while somebody needs it.
//
//   const isOpen = useOpenRounds(population, tasks.some(isRequeuable));
//   isOpen("r-7k2m9q4x");
import {fetchRounds, OPEN_STATES} from "./rounds.js";
import {useLive} from "./use_live.js";

// What one call brings at the most.
const LISTED_MAX = 1000;

export function useOpenRounds(population: string, isNeeded: boolean): (round: string) => boolean {
  const live = useLive(async (signal) => {
    if (!isNeeded) return null;
    const {items, next} = await fetchRounds(population, "", OPEN_STATES)("", LISTED_MAX, signal);
    return {ids: new Set(items.map(({id}) => id)), isAll: !next};
  }, ["open rounds", population, isNeeded]);
  const open = live.value;
  // Where there are more, those that are not listed may be: the server decides.
  return (round) => Boolean(open && (open.ids.has(round) || !open.isAll));
}
