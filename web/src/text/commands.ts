// Command lines for people to copy.

/** For `--server`: where the methods are that this page calls. */
export function serverAddress(page: string): string {
  return new URL(".", page).href.replace(/\/$/, "");
}

/** As a shell takes it for one word, whatever is in it. */
export function shellWord(text: string): string {
  return /^[\w.,:/@%+=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** With the options that lead to a server and to a population of it; to one that asks for tokens, with one, too. */
export function commandTo(command: string, to: {server: string; population: string; hasTokens: boolean}): string {
  return [
    command, `--server ${shellWord(to.server)}`, to.population !== "default" && `--population ${shellWord(to.population)}`,
    to.hasTokens && "--token-file FILE",
  ].filter(Boolean).join(" ");
}

/** Between which a line may be broken: an option stays with its value. */
export function unitsOf(command: string): string[] {
  const units: string[] = [];
  let last = "";
  for (const word of command.split(" ")) {
    if (last.startsWith("-") && !word.startsWith("-")) units.push(`${units.pop()} ${word}`);
    else units.push(word);
    last = word;
  }
  return units;
}
