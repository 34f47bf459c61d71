// Inbox: where completions wait until the loop takes its next step: what follows from them happens in one place, one after the
// other, and at a time that the loop is told.
//
//   inbox.post((now) => attempt.step(now));                 // Calls `wake`.
//   for (const event of inbox.takeAll()) event(now);
//
// Once closed it drops what still comes.

export type Event = (now: number) => void;

export class Inbox {
  private readonly wake: () => void;
  private events: Event[] = [];
  private isClosed = false;

  constructor(wake: () => void) {
    this.wake = wake;
  }

  post(event: Event): void {
    if (this.isClosed) return;
    this.events.push(event);
    this.wake();
  }

  takeAll(): Event[] {
    const events = this.events;
    this.events = [];
    return events;
  }

  get isEmpty(): boolean {
    return this.events.length === 0;
  }

  close(): void {
    this.events = [];
    this.isClosed = true;
  }
}
