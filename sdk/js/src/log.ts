// Where a worker says what it does. `console` is one; a test takes none.

export interface Log {
  debug(sentence: string): void;
  info(sentence: string): void;
  warn(sentence: string): void;
  error(sentence: string): void;
}

export const silent: Log = {debug() {}, info() {}, warn() {}, error() {}};

/** The console, without what is said for each task. */
export const consoleLog: Log = {
  debug() {},
  info: (sentence) => console.info(`sheaf: ${sentence}`),
  warn: (sentence) => console.warn(`sheaf: ${sentence}`),
  error: (sentence) => console.error(`sheaf: ${sentence}`),
};
