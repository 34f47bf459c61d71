// Numbers as `sheaf` writes them in its tables: see cli/terminal/human_text.h.

/** Of an int64, which JSON has as a string; of nothing, which is 0. */
export function int(value: string | number | undefined): number {
  return Number(value ?? 0);
}

/** Seconds of "1.5s". */
export function seconds(duration: string | undefined): number {
  return parseFloat(duration ?? "0");
}

/** Milliseconds since 1970 of a time, with the microseconds that it has; NaN of none. */
export function at(time: string | undefined): number {
  return Date.parse(time ?? "") + Number(`0.${/\.\d{3}(\d*)/.exec(time ?? "")?.[1] || 0}`);
}

function threeDigits(value: number): string {
  return String(Number(value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0)));
}

const two = (value: number): string => String(value).padStart(2, "0");

export function duration(value: number): string {
  if (!isFinite(value)) return "–";
  if (value <= 0) return "0s";
  if (value < 0.9995e-3) return `${threeDigits(value * 1e6)}us`;
  if (value < 0.9995) return `${threeDigits(value * 1e3)}ms`;
  if (value < 59.95) return `${threeDigits(value)}s`;
  const whole = Math.round(value);
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h${two(Math.floor(whole / 60) % 60)}m`;
  return `${Math.floor(whole / 86400)}d${two(Math.floor(whole / 3600) % 24)}h`;
}

/** Of a moment in the past, in one unit: "31m". */
export function age(time: string | undefined, now = Date.now()): string {
  const value = Math.max(0, Math.floor((now - at(time)) / 1000));
  if (isNaN(value)) return "–";
  const [unit, size] = value < 60 ? ["s", 1] : value < 3600 ? ["m", 60] : value < 86400 ? ["h", 3600] : ["d", 86400];
  return `${Math.floor(value / (size as number))}${unit}`;
}

export function bytes(value: number): string {
  if (value < 1000) return `${value} B`;
  let unit = -1;
  for (; value >= 999.5; ++unit) value /= 1000;
  return `${value.toFixed(value < 9.95 ? 1 : 0)} ${["kB", "MB", "GB", "TB", "PB", "EB"][unit]}`;
}

export function count(value: string | number | undefined): string {
  return int(value).toLocaleString("en-US");
}

/** With six significant digits, as people compare metrics. */
export function metric(value: number): string {
  return String(Number(Number(value).toPrecision(6)));
}

export function percent(share: number): string {
  return `${(share * 100).toFixed(share > 0 && share < 0.0995 ? 1 : 0)} %`;
}

/** What a server says of an error, as a sentence: "there is no round r-1" begins as one and ends as one. */
export function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}

/** "1 task", "2 tasks" */
export function plural(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}
