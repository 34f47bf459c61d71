// Where in the dashboard the tab is: "#/rounds/r-7k2m9q4x?population=default". A link is a link: back, reload and copies work.
import {Cell} from "./cell.js";

export interface Place {
  /** "overview", "rounds", "jobs", "queue", "workers". */
  page: string;
  /** A round's or a job's; empty: none. */
  name: string;
  query: URLSearchParams;
}

function read(): Place {
  const [path = "", query = ""] = location.hash.replace(/^#?\/?/, "").split("?");
  const [page = "", ...name] = path.split("/");
  let decoded = name.join("/");
  try {
    decoded = decodeURIComponent(decoded);
  } catch {
    // A link that somebody cut off: it names nothing.
  }
  return {page: page || "overview", name: decoded, query: new URLSearchParams(query)};
}

export const place = new Cell(read());
addEventListener("hashchange", () => { place.value = read(); });

/** That the link says, or else the first of those that the token is for. */
export function population(allowed: readonly string[] = []): string {
  return place.value.query.get("population") || (allowed.length > 0 && !allowed.includes("default") ? allowed[0]! : "default");
}

/** Of another page, of the same population. */
export function linkTo(page: string, name = "", args: Record<string, string> = {}): string {
  const of = population();
  const query = new URLSearchParams({...(of !== "default" && {population: of}), ...args}).toString();
  return `#/${page === "overview" ? "" : page}${name && `/${encodeURIComponent(name)}`}${query && `?${query}`}`;
}

/** Changes what is filtered by, which "back" does not undo step by step. */
export function setQuery(args: Record<string, string>): void {
  const {page, name, query} = place.value;
  const next = new URLSearchParams(query);
  for (const [key, value] of Object.entries(args)) value ? next.set(key, value) : next.delete(key);
  const text = next.toString();
  history.replaceState(null, "", `#/${page === "overview" ? "" : page}${name && `/${encodeURIComponent(name)}`}${text && `?${text}`}`);
  place.value = read();
}
