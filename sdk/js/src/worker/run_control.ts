// RunControl: between the loop and one run: the loop stops it, the run reports that it makes progress.

export class RunControl {
  private readonly controller = new AbortController();
  private reported = 0n;

  cancel(): void {
    this.controller.abort();
  }

  get isCancelled(): boolean {
    return this.controller.signal.aborted;
  }

  get signal(): AbortSignal {
    return this.controller.signal;
  }

  reportProgress(): void {
    ++this.reported;
  }

  get progress(): bigint {
    return this.reported;
  }
}
