// Table: rows of which only those that are seen are in the page, so that ten thousand scroll as ten do.
//
//   <Table name="rounds" label="Rounds" rows={rounds} idOf={(round) => round.id} onEnd={more} columns={[
//     {name: "Round", cell: (round) => <a href={linkTo("rounds", round.id)}>{round.id}</a>},
//   ]}/>
//
// It scrolls with the page. All rows are of one height, which style.css gives to the class `t-NAME` along with the widths of the
// columns; on a narrow screen a row has two lines. Only what opens in a row, as a question does, makes it taller, and moves those below.
import type {ComponentChildren} from "preact";
import {useEffect, useLayoutEffect, useRef, useState} from "preact/hooks";

export interface Column<Row> {
  name: string;
  cell: (row: Row) => ComponentChildren;
  /** Of the cell: "num" is right-aligned, "wide" is left out on narrow screens, "main" comes first there. */
  class?: string;
}

const AROUND = 12;

/** A row at its place. Its height is told whenever it changes; when it goes, it is 0. */
function PlacedRow({index, top, onHeight, children}: {index: number; top: number; onHeight: (height: number) => void; children: ComponentChildren}) {
  const row = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => onHeight(row.current!.offsetHeight));
    observer.observe(row.current!);
    return () => {
      observer.disconnect();
      onHeight(0);
    };
  }, []);
  return <div role="row" ref={row} aria-rowindex={index} style={{top: `${top}px`}}>{children}</div>;
}

interface Props<Row> {
  name: string;
  label: string;
  rows: Row[];
  columns: Column<Row>[];
  idOf: (row: Row) => string;
  /** There are more than `rows`, and the last is near. */
  onEnd?: () => void;
  hasMore?: boolean;
}

export function Table<Row>({name, label, rows, columns, idOf, onEnd, hasMore = false}: Props<Row>) {
  const body = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState({first: 0, end: 40, height: 31});
  // By how much rows are taller than others. Those that are not in the page are as all are.
  const [taller, setTaller] = useState<ReadonlyMap<string, number>>(new Map());
  const extra = useRef(0);
  const rowHeight = useRef(31);
  extra.current = [...taller.values()].reduce((sum, value) => sum + value, 0);
  const noteHeight = (id: string, height: number) => setTaller((before) => {
    const by = Math.max(0, height - rowHeight.current);
    if (by === (before.get(id) ?? 0)) return before;
    return new Map([...before].filter(([other]) => other !== id).concat(by > 0 ? [[id, by]] : []));
  });
  const look = () => {
    const height = parseFloat(getComputedStyle(body.current!).getPropertyValue("--row"));
    rowHeight.current = height;
    const top = body.current!.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor((-top - extra.current) / height) - AROUND);
    const end = Math.ceil((innerHeight - top) / height) + AROUND;
    setSeen((before) => before.first === first && before.end === end && before.height === height ? before : {first, end, height});
  };
  // Their height is the style sheet's, by the table's name.
  useLayoutEffect(look, [rows.length, name]);
  useEffect(() => {
    let isAsked = false;
    const onScroll = () => {
      if (isAsked) return;
      isAsked = true;
      requestAnimationFrame(() => {
        isAsked = false;
        if (body.current !== null) look();
      });
    };
    addEventListener("scroll", onScroll, {passive: true});
    addEventListener("resize", onScroll);
    return () => {
      removeEventListener("scroll", onScroll);
      removeEventListener("resize", onScroll);
    };
  }, []);
  const isNearEnd = hasMore && seen.end >= rows.length;
  useEffect(() => { if (isNearEnd) onEnd?.(); }, [isNearEnd, rows.length]);
  let top = seen.first * seen.height;
  const placed = rows.slice(seen.first, seen.end).map((row) => {
    const place = {row, id: idOf(row), top};
    top += seen.height + (taller.get(place.id) ?? 0);
    return place;
  });
  return <div class={`table t-${name}`} role="table" aria-label={label} aria-rowcount={hasMore ? -1 : rows.length + 1}>
    <div role="rowgroup" class="head">
      <div role="row" aria-rowindex={1}>{columns.map((column) => <span key={column.name} role="columnheader" class={column.class}>{column.name}</span>)}</div>
    </div>
    <div role="rowgroup" ref={body} class="body" style={{height: `${rows.length * seen.height + extra.current}px`}}>
      {placed.map(({row, id, top}, i) => (
        <PlacedRow key={id} index={seen.first + i + 2} top={top} onHeight={(height) => noteHeight(id, height)}>
          {columns.map((column) => <span key={column.name} role="cell" class={column.class} data-name={column.name}>{column.cell(row)}</span>)}
        </PlacedRow>
      ))}
    </div>
  </div>;
}
