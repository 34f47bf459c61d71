// usePages: a list of the server's that comes in pages, of which the first is asked for again and again.
//
//   const {value, more} = usePages(async (token, size, signal) => {
//     const {tasks = [], nextPageToken} = await client.call("InspectionService/ListTasks", {pageToken: token, pageSize: size}, signal);
//     return {items: tasks, next: nextPageToken};
//   }, (task) => task.id!, [population]);
import {useRef} from "preact/hooks";

import {joined, type Page} from "./page.js";
import {type Live, useLive} from "./use_live.js";

export type FetchPage<Item> = (token: string, size: number, signal: AbortSignal) => Promise<Page<Item>>;

const FIRST_PAGE = 100;
const LATER_PAGE = 500;
// What one call brings at the most.
const REFRESHED_MAX = 1000;

interface Options<Item> {
  /** Only the first page is asked for again: what is behind it changes by `follow`, if at all. */
  isNewestFirst?: boolean;
  /** Brings what is behind the first page up to date. */
  follow?: (items: Item[], signal: AbortSignal) => Promise<Item[]>;
}

export function usePages<Item>(fetchPage: FetchPage<Item>, idOf: (item: Item) => string, key: unknown[], options: Options<Item> = {}):
    Live<Page<Item>> & {more: () => void} {
  // How many are wanted: grows as somebody scrolls.
  const wanted = useRef({of: "", size: FIRST_PAGE});
  const of = JSON.stringify(key);
  if (wanted.current.of !== of) wanted.current = {of, size: FIRST_PAGE};
  const live = useLive<Page<Item>>(async (signal, known) => {
    const size = options.isNewestFirst ? FIRST_PAGE : Math.min(REFRESHED_MAX, wanted.current.size);
    const first = await fetchPage("", size, signal);
    let all = known === undefined ? first : joined(first, known, idOf);
    if (options.follow && all.items.length > first.items.length) {
      all = {...all, items: [...first.items, ...await options.follow(all.items.slice(first.items.length), signal)]};
    }
    while (all.next && all.items.length < wanted.current.size) {
      const {items, next} = await fetchPage(all.next, LATER_PAGE, signal);
      all = {items: [...all.items, ...items], next};
    }
    return all;
  }, key);
  const more = () => {
    const known = live.value?.items.length ?? 0;
    if (wanted.current.size > known) return;
    wanted.current.size = known + LATER_PAGE;
    live.refresh();
  };
  return {...live, more};
}
