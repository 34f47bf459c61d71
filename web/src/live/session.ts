// What all pages share: who calls, of which population, and whether the server answers. In this tab's memory only.
import {CallError, Client} from "../api/client.js";
import {Cell} from "./cell.js";

export const client = new Client();

/** Why a token is asked for: a sentence, "" before the first; null: none is asked for. */
export const wanted = new Cell<string | null>(null);
/** Why the server does not answer; null: it does. */
export const lost = new Cell<string | null>(null);
export const isHidden = new Cell(document.hidden);
/** "": as the system has it. */
export const theme = new Cell<"" | "light" | "dark">("");

document.addEventListener("visibilitychange", () => { isHidden.value = document.hidden; });
theme.watch(() => { document.documentElement.dataset["theme"] = theme.value; });

/** Of any failed call: whether it says something of the session, and not of the call. */
export function note(error: CallError): void {
  if (error.code === "unauthenticated") wanted.value = client.token === "" ? "" : error.message;
  lost.value = error.code === "unavailable" ? error.message : null;
}

export function signIn(token: string): void {
  client.token = token;
  wanted.value = null;
}

export function signOut(): void {
  client.token = "";
  wanted.value = "";
}
