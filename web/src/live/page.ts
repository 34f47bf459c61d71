// Page: some items of a list that comes in pages, and how a newer first page joins what is known behind it.

export interface Page<Item> {
  items: Item[];
  /** Of the page behind; empty: there is none. */
  next?: string;
}

/**
 * The items of the page, then those that were known behind it. If it has none that was known, there are more between them than
 * it has, and those behind are asked for anew.
 */
export function joined<Item>(page: Page<Item>, known: Page<Item>, idOf: (item: Item) => string): Page<Item> {
  if (page.next === undefined || page.next === "" || known.items.length <= page.items.length) return page;
  const ids = new Set(page.items.map(idOf));
  const firstKnown = known.items.findIndex((item) => ids.has(idOf(item)));
  if (firstKnown < 0) return page;
  const lastKnown = known.items.findLastIndex((item) => ids.has(idOf(item)));
  return {items: [...page.items, ...known.items.slice(lastKnown + 1)], next: known.next};
}
