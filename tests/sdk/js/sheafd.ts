// Sheafd: a server of a test's own, which can be killed and started again under its addresses.
import {type ChildProcess, spawn} from "node:child_process";
import {existsSync, mkdtempSync, readFileSync, rmSync} from "node:fs";
import {tmpdir} from "node:os";
import {join} from "node:path";

const MILLIS_MAX = 30_000;

export function sleep(millis: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, millis));
}

/** Until it is true. */
export async function until(what: string, isSo: () => boolean): Promise<void> {
  for (const begin = Date.now(); !isSo(); await sleep(5)) {
    if (Date.now() - begin > MILLIS_MAX) throw new Error(`${what}: not within ${MILLIS_MAX / 1000} s`);
  }
}

export function program(name: string): string {
  return join(process.env["SHEAF_BINARIES"]!, name);
}

export class Sheafd {
  /** Of gRPC, for workers in other languages. */
  address = "127.0.0.1:0";
  /** Of HTTP. */
  http = "127.0.0.1:0";
  readonly directory = mkdtempSync(join(tmpdir(), "sheaf-js-server-"));
  private readonly options: readonly string[];
  private process: ChildProcess | null = null;
  private readonly helpers: ChildProcess[] = [];

  private constructor(options: readonly string[]) {
    this.options = options;
  }

  static async start(...options: string[]): Promise<Sheafd> {
    const server = new Sheafd(options);
    await server.start();
    return server;
  }

  async start(): Promise<void> {
    const files = ["port", "http-port"].map((name) => join(this.directory, name)) as [string, string];
    for (const file of files) rmSync(file, {force: true});
    this.process = spawn(program("sheafd"), [
      "--listen", this.address, "--http", this.http, "--port-file", files[0], "--http-port-file", files[1], "--data-dir",
      join(this.directory, "store"), "--log-level", "warning", ...this.options,
    ], {stdio: ["ignore", "inherit", "inherit"]});
    await until("sheafd is up", () => files.every((file) => existsSync(file)));
    [this.address, this.http] = files.map((file) => readFileSync(file, "utf8").trim()) as [string, string];
  }

  async kill(): Promise<void> {
    await end(this.process!, "SIGKILL");
  }

  /** A process that is ended with the server. */
  helper(command: string, args: readonly string[], environment: Record<string, string> = {}): ChildProcess {
    const process_ = spawn(command, args, {stdio: ["ignore", "ignore", "inherit"], env: {...process.env, ...environment}});
    this.helpers.push(process_);
    return process_;
  }

  async close(): Promise<void> {
    for (const helper of this.helpers) await end(helper, "SIGKILL");
    await end(this.process!, "SIGTERM");
    rmSync(this.directory, {recursive: true, force: true});
  }
}

function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return Promise.resolve();
  return new Promise((resolve) => {
    child.once("exit", () => resolve());
    child.kill(signal);
  });
}
