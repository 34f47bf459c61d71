// useScrub: one of many things in a picture, chosen with the pointer or with the keys of a slider.
//
//   const scrub = useScrub(tasks.length, (i) => `task ${i}: queued`, "Tasks", (x, y) => indexUnder(x, y));
//   <div {...scrub.props}>…</div>   // scrub.index: the one that is chosen, or null.
import {useState} from "preact/hooks";

const PAGE = 10;

export function useScrub(
  count: number, textOf: (index: number) => string, label: string, indexAt: (x: number, y: number) => number,
  /** The one that is chosen at first, if it is not negative. */
  first = () => -1,
) {
  const [chosen, choose] = useState(() => {
    const index = first();
    return index < 0 ? null : index;
  });
  const index = chosen === null || count === 0 ? null : Math.min(chosen, count - 1);
  const props = {
    role: "slider" as const,
    tabIndex: 0,
    "aria-label": label,
    "aria-valuemin": 0,
    "aria-valuemax": Math.max(0, count - 1),
    "aria-valuenow": index ?? 0,
    "aria-valuetext": index === null ? "none is chosen" : textOf(index),
    onKeyDown: (event: KeyboardEvent) => {
      const now = index ?? -1;
      const next = ({ArrowRight: now + 1, ArrowDown: now + 1, ArrowLeft: now - 1, ArrowUp: now - 1, PageDown: now + PAGE, PageUp: now - PAGE,
        Home: 0, End: count - 1} as Record<string, number>)[event.key];
      if (event.key === "Escape") choose(null);
      if (next === undefined || count === 0) return;
      event.preventDefault();
      choose(Math.max(0, Math.min(count - 1, next)));
    },
    onPointerMove: (event: PointerEvent) => { if (event.pointerType === "mouse") point(event); },
    onPointerDown: (event: PointerEvent) => point(event),
  };
  const point = (event: PointerEvent) => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    const at = indexAt(event.clientX - box.left, event.clientY - box.top);
    if (at >= 0 && at < count) choose(at);
  };
  return {index, choose, props};
}
