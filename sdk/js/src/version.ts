// Of this package.
export const VERSION = "0.1.0";

// What operators see of a worker: a tab goes when its person does.
export const SOFTWARE_VERSION = `js-${VERSION}${"document" in globalThis || "WorkerGlobalScope" in globalThis ? " browser" : ""}`;
