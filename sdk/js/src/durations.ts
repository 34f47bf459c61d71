// Durations on the wire; here all are milliseconds, as a number.
import {create} from "@bufbuild/protobuf";
import {type Duration, DurationSchema} from "@bufbuild/protobuf/wkt";

export function fromDuration(duration: Duration | undefined): number {
  return duration === undefined ? 0 : Number(duration.seconds) * 1000 + duration.nanos / 1e6;
}

export function toDuration(millis: number): Duration {
  const seconds = Math.trunc(millis / 1000);
  return create(DurationSchema, {seconds: BigInt(seconds), nanos: Math.trunc((millis - seconds * 1000) * 1e6)});
}
