// Which server is meant where none is named.
import {SheafError} from "./errors.js";

/** SHEAF_SERVER in Node; in a page, or a Web Worker of one, where it came from. INVALID_ARGUMENT if there is neither. */
export function ownOrigin(): string {
  const environment = (globalThis as {process?: {env?: Record<string, string | undefined>}}).process?.env;
  const server = environment?.["SHEAF_SERVER"] ?? (typeof location === "undefined" ? undefined : location.origin);
  if (server !== undefined && server !== "null") return server;
  throw new SheafError("INVALID_ARGUMENT", 'which server? Give `server: "https://HOST:PORT"`, or set SHEAF_SERVER');
}
