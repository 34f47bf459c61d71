// Commands: command lines to copy. On a narrow screen they are broken between words, but not within an option and its value.
import {client} from "../live/session.js";
import {commandTo, serverAddress, unitsOf} from "../text/commands.js";

/** A command among other text. */
export function Code({text}: {text: string}) {
  return <code>{unitsOf(text).map((unit, i) => <>{i > 0 && " "}<span class="unit">{unit}</span></>)}</code>;
}

export function Commands({lines}: {lines: string[]}) {
  return <pre>{lines.map((line) => <Code key={line} text={line}/>)}</pre>;
}

/** To the server of this page, as its caller sees it. */
export function ServerCommands({commands, population}: {commands: string[]; population: string}) {
  const to = {server: serverAddress(location.href), population, hasTokens: client.token !== ""};
  return <Commands lines={commands.map((command) => commandTo(command, to))}/>;
}
