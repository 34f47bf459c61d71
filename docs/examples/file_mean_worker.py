#!/usr/bin/env python3
"""A Sheaf worker in Python: the mean of numbers that do not leave the machine they are on.

  PYTHONPATH=FOLDER_OF_GENERATED_CODE file_mean_worker.py SERVER NAME FILE

FILE has a number on each line. docs/guides/write-a-worker.md explains each step, and how to generate the code.
"""

import random
import secrets
import struct
import sys
import threading
import time

import grpc
from sheaf.v1 import aggregation_pb2, work_service_pb2
from sheaf.v1.work_service_pb2_grpc import WorkServiceStub

WAIT_SECONDS = 30


class Attempt(threading.Thread):
    """Computes one task beside the loop that calls the server."""

    def __init__(self, lease, sent, path):
        super().__init__(daemon=True)
        self.lease, self.path = lease, path
        self.must_end_at = sent + lease.remaining.ToNanoseconds() / 1e9
        # Grows while there is progress. A clock: the attempt before it, of a worker of this name, may have counted.
        self.progress = time.time_ns()
        self.is_done = threading.Event()
        self.result = work_service_pb2.TaskResult(task=lease.task, lease_token=lease.lease_token)

    def run(self):
        try:
            self.result.contribution = self.compute().SerializeToString()
        except Exception as error:  # Whatever it is, the server is told, and another worker may do better.
            self.result.failure.message = f"{type(error).__name__} in file_mean"  # Quotes no data.
        self.is_done.set()

    def compute(self):
        numbers = []
        with open(self.path, encoding="utf-8") as file:
            for line in file:
                numbers.append(float(line))
                self.progress = time.time_ns()
        contribution = aggregation_pb2.Contribution(weight=len(numbers))
        for output in self.lease.aggregate.outputs:
            dense = contribution.outputs.add(name=output.name).dense
            dense.dtype = output.dtype
            dense.shape.extend(output.dense_shape)
            dense.data = struct.pack("<d", sum(numbers) / len(numbers))
        return contribution


def next_request(name, attempt):
    request = work_service_pb2.SyncRequest(protocol_version=1, worker=name)
    request.computations.add(name="file_mean", version=1)
    if attempt is not None and not attempt.is_done.is_set():
        request.held.add(task=attempt.lease.task, lease_token=attempt.lease.lease_token, progress=attempt.progress)
        return request
    if attempt is not None:
        request.results.append(attempt.result)
    request.want, request.poll_id, request.wait.seconds = 1, secrets.token_hex(8), WAIT_SECONDS
    return request


def work(server, name, path):
    # A call that does not wait for the connection would fail for 5 to 10 s after a server was away for a moment.
    options = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000)]
    stub = WorkServiceStub(grpc.insecure_channel(server, options))
    attempt, pause_max = None, 0.1
    while True:
        request = next_request(name, attempt)
        while True:
            sent = time.monotonic()
            try:
                answer = stub.Sync(request, timeout=request.wait.seconds + 10, wait_for_ready=True)
                break
            except grpc.RpcError as error:  # The same request again: nothing is counted or granted twice.
                if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED,
                                        grpc.StatusCode.RESOURCE_EXHAUSTED):
                    raise
                time.sleep(max(random.uniform(0, pause_max), pushback_seconds(error)))
                pause_max = min(2 * pause_max, 10)
        pause_max = 0.1

        for verdict in answer.verdicts:  # Whatever it says, the task is done with.
            print(verdict.task, work_service_pb2.ResultVerdict.Verdict.Name(verdict.verdict), verdict.message, flush=True)
            attempt = None
        for update in answer.held:
            if update.verdict == work_service_pb2.LeaseUpdate.HELD:
                attempt.must_end_at = sent + update.remaining.ToNanoseconds() / 1e9
            else:
                attempt = None  # Cancelled or lost. Its thread ends by itself, and nobody hears of it.
        for lease in answer.leases:
            attempt = Attempt(lease, sent, path)
            attempt.start()

        if attempt is None:
            soonest, latest = (moment.ToNanoseconds() / 1e9 for moment in (answer.next_min, answer.next_max))
            time.sleep(random.uniform(soonest, latest))
        else:
            left = attempt.must_end_at - time.monotonic()
            attempt.is_done.wait(max(left, 0) / 3)


def pushback_seconds(error):
    metadata = dict(error.trailing_metadata() or ())
    return int(metadata.get("grpc-retry-pushback-ms", 0)) / 1000


if __name__ == "__main__":
    work(*sys.argv[1:])
