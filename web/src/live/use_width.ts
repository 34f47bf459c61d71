// useWidth: of an element, as it is laid out.
//
//   const [frame, width] = useWidth();
//   <div ref={frame}>…</div>
import {useLayoutEffect, useRef, useState} from "preact/hooks";

export function useWidth() {
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => setWidth(Math.floor(frame.current?.clientWidth ?? 0)));
    observer.observe(frame.current!);
    setWidth(Math.floor(frame.current!.clientWidth));
    return () => observer.disconnect();
  }, []);
  return [frame, width] as const;
}
