// Cell: a value that components watch.
//
//   const theme = new Cell("light");
//   const value = useCell(theme);   // In a component: it is drawn again when the value changes.
import {useEffect, useState} from "preact/hooks";

export class Cell<T> {
  private readonly watchers = new Set<() => void>();

  constructor(private current: T) {}

  get value(): T {
    return this.current;
  }

  set value(next: T) {
    if (next === this.current) return;
    this.current = next;
    for (const watcher of this.watchers) watcher();
  }

  watch(watcher: () => void): () => void {
    this.watchers.add(watcher);
    return () => void this.watchers.delete(watcher);
  }
}

export function useCell<T>(cell: Cell<T>): T {
  const [, draw] = useState({});
  useEffect(() => cell.watch(() => draw({})), [cell]);
  return cell.value;
}
