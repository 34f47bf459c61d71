// Curve: values over rounds, oldest first, with axes; the value under the pointer, or that the arrow keys chose, in words.
//
//   <Curve name="loss" points={[{label: "r-7k2m9q4x", value: 0.52, href: "#/rounds/r-7k2m9q4x"}]} textOf={metric}/>
import {useScrub} from "../live/use_scrub.js";
import {useWidth} from "../live/use_width.js";
import {ticksBetween} from "../text/curves.js";

export interface Point {
  label: string;
  /** NaN: there is none. */
  value: number;
  href: string;
}

const HEIGHT = 160;
const LEFT = 58;
const EDGE = 10;

export function Curve({name, points, textOf}: {name: string; points: Point[]; textOf: (value: number) => string}) {
  const [frame, width] = useWidth();
  const finite = points.map(({value}) => value).filter(isFinite);
  const ticks = ticksBetween(finite.reduce((a, b) => Math.min(a, b), Infinity), finite.reduce((a, b) => Math.max(a, b), -Infinity));
  const [low, high] = [ticks[0]!, ticks.at(-1)!];
  const step = (width - LEFT - EDGE) / Math.max(1, points.length - 1);
  const x = (i: number) => LEFT + i * step;
  const y = (value: number) => HEIGHT - 20 - (value - low) / (high - low) * (HEIGHT - 20 - EDGE);
  const scrub = useScrub(points.length, (i) => `${points[i]!.label}: ${textOf(points[i]!.value)}`, `${name} over rounds`,
    (at) => Math.max(0, Math.min(points.length - 1, Math.round((at - LEFT) / step))));
  const chosen = points[scrub.index ?? points.length - 1]!;
  const line = points.map(({value}, i) => isFinite(value) ? `${x(i).toFixed(1)},${y(value).toFixed(1)}` : "").join(" ");
  return <figure class="card">
    <figcaption><strong title={name}>{name}</strong> <span><a class="id" href={chosen.href}>{chosen.label}</a> {textOf(chosen.value)}</span></figcaption>
    <div ref={frame}>{width > 0 && <div {...scrub.props}>
      <svg class="curve" width={width} height={HEIGHT} aria-hidden="true">
        {ticks.map((tick) => <g key={tick}><line x1={LEFT} x2={width - EDGE} y1={y(tick)} y2={y(tick)}/><text x={LEFT - 6} y={y(tick) + 4}>{textOf(tick)}</text></g>)}
        <polyline points={line}/>
        {points.length <= 60 && points.map(({value}, i) => isFinite(value) && <circle key={i} cx={x(i)} cy={y(value)} r="2"/>)}
        {scrub.index !== null && isFinite(chosen.value) && <circle class="chosen" cx={x(scrub.index)} cy={y(chosen.value)} r="4.5"/>}
        <text x={LEFT} y={HEIGHT - 4} class="first">{points[0]!.label}</text><text x={width - EDGE} y={HEIGHT - 4}>{points.at(-1)!.label}</text>
      </svg>
    </div>}</div>
  </figure>;
}
