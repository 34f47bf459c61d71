// Agenda: virtual time. What is planned happens in order of its time, and of being planned.

export class Agenda {
  private time: number;
  private planned: {time: number; order: number; event: () => void}[] = [];
  private order = 0;

  /** Begins at 2001-09-09, as the C++ one does. */
  constructor(begin = 1_000_000_000_000) {
    this.time = begin;
  }

  get now(): number {
    return this.time;
  }

  at(time: number, event: () => void): void {
    this.planned.push({time: Math.max(time, this.time), order: this.order++, event});
  }

  after(millis: number, event: () => void): void {
    this.at(this.time + millis, event);
  }

  /** Until then, that moment included. */
  playUntil(end: number): void {
    while (this.planned.length > 0) {
      this.planned.sort((a, b) => a.time - b.time || a.order - b.order);
      if (this.planned[0]!.time > end) break;
      const {time, event} = this.planned.shift()!;
      this.time = time;
      event();
    }
    this.time = Math.max(this.time, end);
  }
}
