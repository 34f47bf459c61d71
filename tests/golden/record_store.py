#!/usr/bin/env python3
"""Writes the store that a released sheafd leaves when it is killed, and what it answers when it starts on it again.

  record_store.py SHEAFD OUT      OUT/data is the store, OUT/answers.tsv the answers

Not a test but a tool: a released version is recorded once. Needs python3-grpcio, python3-protobuf and protoc. README.md
says what stands in answers.tsv.
"""

import hashlib
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

import grpc
from google.protobuf import json_format

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROTOS = tempfile.TemporaryDirectory()
subprocess.run(["protoc", f"-I{ROOT}/proto", f"--python_out={PROTOS.name}",
                *map(str, sorted((ROOT / "proto/sheaf/v1").glob("*.proto")))], check=True)
sys.path.insert(0, PROTOS.name)
from sheaf.v1 import (access_service_pb2, aggregation_pb2, blob_service_pb2, inspection_service_pb2, round_service_pb2,
                      tensor_pb2, work_service_pb2, round_pb2)  # noqa: E402

FILES = {"AccessService": access_service_pb2, "BlobService": blob_service_pb2,
         "InspectionService": inspection_service_pb2, "RoundService": round_service_pb2,
         "WorkService": work_service_pb2}


class Server:
    def __init__(self, sheafd, data):
        self.sheafd, self.data = sheafd, data
        self.authorization = ""

    def start(self):
        port_file = pathlib.Path(PROTOS.name) / "port"
        port_file.unlink(missing_ok=True)
        self.process = subprocess.Popen([self.sheafd, "--data-dir", self.data, "--listen", "127.0.0.1:0", "--port-file",
                                         port_file, "--log-level", "warning"])
        while not port_file.exists() or not port_file.read_text().strip():
            time.sleep(0.01)
        self.channel = grpc.insecure_channel(port_file.read_text().strip())

    def end(self, how):
        self.process.send_signal(how)
        self.process.wait()
        self.channel.close()

    def call(self, method, authorization=None, **fields):
        service, name = method.split("/")
        module = FILES[service]
        request = getattr(module, name + "Request")(**fields)
        response = getattr(module, name + "Response")
        stub = self.channel.unary_unary(f"/sheaf.v1.{method}", request_serializer=type(request).SerializeToString,
                                        response_deserializer=response.FromString)
        sent = time.time_ns()
        answer = stub(request, metadata=[("authorization", authorization or self.authorization)])
        return sent, request, answer

    def ask(self, method, **fields):
        return self.call(method, **fields)[2]


def floats(*values):
    return tensor_pb2.Tensor(dtype=tensor_pb2.FLOAT32, shape=[len(values)],
                             data=struct.pack(f"<{len(values)}f", *values))


def integers(*values):
    return tensor_pb2.Tensor(dtype=tensor_pb2.INT64, shape=[len(values)],
                             data=struct.pack(f"<{len(values)}q", *values))


SPEC = aggregation_pb2.AggregateSpec(outputs=[
    dict(name="dense", operator="sum", dtype=tensor_pb2.FLOAT32, dense_shape=[4]),
    dict(name="mean", operator="weighted_mean", dtype=tensor_pb2.FLOAT32, dense_shape=[2]),
    dict(name="sparse", operator="sparse_sum", dtype=tensor_pb2.INT64, dense_shape=[1000]),
    dict(name="touched", operator="coordinate_mean", dtype=tensor_pb2.FLOAT32, dense_shape=[1000],
         form=aggregation_pb2.SPARSE),
    dict(name="words", operator="keyed_sum", dtype=tensor_pb2.FLOAT32, key_type=aggregation_pb2.STRING_KEYS),
])


# What the worker of task `index` hands in; store_test.cc makes the same.
def contribution(index):
    third = (index + 1) / 3
    places = [index, 7, 999 - index]
    values = floats(third, 1.5, -third)
    return aggregation_pb2.Contribution(
        outputs=[
            dict(name="dense", dense=floats(third, 0, -2.5, 1e-30)),
            dict(name="mean", dense=floats(third, float(index))),
            dict(name="sparse", sparse=dict(dense_shape=[1000], indices=integers(*places),
                                            values=integers(index, -1, 1 << 40))),
            dict(name="touched", sparse=dict(dense_shape=[1000], indices=integers(*places), values=values)),
            dict(name="words", keyed=dict(string_keys=[b"all", f"word {index}".encode()], values=floats(third, 1))),
        ],
        weight=index + 0.5, metrics={"loss": 0.1 * index, "examples": 10 + index})


def index_of(name):
    return int(name.split("/")[1])


class Worker:
    def __init__(self, server, name, **labels):
        self.server, self.name, self.labels, self.polls = server, name, labels, 0

    def sync(self, want=0, results=(), held=()):
        self.polls += 1
        return self.server.ask("WorkService/Sync", protocol_version=1, worker=self.name, population="phones",
                               software_version="0.1.0", poll_id=f"{self.name}-{self.polls}",
                               computations=[dict(name="count", version=2), dict(name="noop", version=1)],
                               labels=self.labels, want=want, results=results, held=held)

    def result(self, lease, **outcome):
        outcome = outcome or dict(contribution=contribution(index_of(lease.task)).SerializeToString())
        timings = dict(download=dict(nanos=1000000), compute=dict(seconds=index_of(lease.task), nanos=5),
                       bytes_down=100)
        return dict(task=lease.task, lease_token=lease.lease_token, timings=timings, **outcome)

    def hand_in(self, *results):
        for verdict in self.sync(results=results).verdicts:
            print(self.name, verdict.task, work_service_pb2.ResultVerdict.Verdict.Name(verdict.verdict))

    def upload(self, lease, part=1.0):
        data = contribution(index_of(lease.task)).SerializeToString()
        started = self.server.ask("BlobService/StartUpload", request_id=f"upload of {lease.task} by {self.name}",
                                  size_bytes=len(data), digest=hashlib.sha256(data).hexdigest(),
                                  contribution=dict(task=lease.task, lease_token=lease.lease_token))
        self.server.ask("BlobService/WriteChunk", upload_id=started.upload_id, data=data[:int(len(data) * part)])
        if part == 1.0:
            self.server.ask("BlobService/FinishUpload", upload_id=started.upload_id)
        return started.upload_id


def create(server, request_id, **fields):
    spec = dict(population="phones", job="recorded",
                computation=dict(name="count", version_min=2, config=b"\x00config"), aggregate=SPEC,
                lease_duration=dict(seconds=3600), deadline=dict(seconds=86400))
    spec.update(fields)
    return server.ask("RoundService/CreateRound", request_id=request_id, spec=spec).round.id


def task(index, **fields):
    return dict(payload=f"payload {index}".encode(), data_selector=f"client:{index}", **fields)


def tasks(count):
    return dict(tasks=[task(index) for index in range(count)])


def upload_broadcast(server):
    header = b'{"w":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}}'
    header += b" " * (-len(header) % 8)
    data = struct.pack("<Q", len(header)) + header + struct.pack("<2f", 1, 2)
    digest = hashlib.sha256(data).hexdigest()
    started = server.ask("BlobService/StartUpload", request_id="the broadcast", size_bytes=len(data), digest=digest)
    server.ask("BlobService/WriteChunk", upload_id=started.upload_id, data=data)
    server.ask("BlobService/FinishUpload", upload_id=started.upload_id)
    return digest


def fill(server):
    """Leaves live rounds with contributions, a sealed one, failed and buried tasks, workers and tokens."""
    everybody = server.ask("AccessService/CreateToken", request_id="token for all", name="everybody",
                           roles=["SUBMITTER", "WORKER", "OPERATOR", "VIEWER"])
    server.authorization = "Bearer " + everybody.secret
    server.ask("AccessService/CreateToken", request_id="token of the program", name="program",
               roles=["SUBMITTER"], populations=["phones"])
    server.ask("AccessService/CreateToken", request_id="token of the fleet", name="fleet", roles=["WORKER"],
               populations=["phones", "tablets"], lifetime=dict(seconds=86400 * 3650))
    lost = server.ask("AccessService/CreateToken", request_id="lost token", name="lost", roles=["VIEWER", "OPERATOR"])
    server.ask("AccessService/RevokeToken", request_id="revocation", token=lost.token.id)
    one, two = Worker(server, "w1", region="eu", zone="eu-1"), Worker(server, "w2")

    sealed = create(server, "sealed", listed=tasks(3), broadcast_digest=upload_broadcast(server))
    for lease in one.sync(want=3).leases:
        one.hand_in(one.result(lease))
    while server.ask("RoundService/GetRound", round=sealed).round.state != round_pb2.SUCCEEDED:
        time.sleep(0.01)

    create(server, "failed", listed=tasks(2))
    for lease in two.sync(want=2).leases:
        two.hand_in(two.result(lease, failure=dict(message="it has no data", permanent=True)))

    cancelled = create(server, "cancelled", open_slots=dict(count=4, task=dict(payload=b"same for all")))
    two.sync(want=1)
    server.ask("RoundService/CancelRound", request_id="cancel", round=cancelled, reason="it was not needed")

    # Of its tasks 0 and 1 are in a checkpoint, 2 (uploaded) and 3 in the spool; 4 is leased, and half of its
    # contribution uploaded; 5 is buried, 6 was given back, 7 waits for a label.
    listed = [*tasks(7)["tasks"], task(7, requirements={"gpu": "yes"})]
    durable = create(server, "durable", listed=dict(tasks=listed), goal=7, min_goal=5, min_clients=2,
                     retry=dict(failed_max=1), priority=2)
    kept = {index_of(lease.task): lease for lease in two.sync(want=8).leases}
    two.hand_in(*(two.result(kept[index]) for index in (0, 1)))
    # Of its tasks 0 and 1 are in a checkpoint, 2 was refused once, 3 is leased, 4 waits.
    ephemeral = create(server, "ephemeral", open_slots=dict(count=5, per_worker_max=4), durability="EPHEMERAL",
                       retry=dict(failed_max=3))
    lent = {index_of(lease.task): lease for lease in one.sync(want=4).leases}
    one.hand_in(*(one.result(lent[index]) for index in (0, 1)))
    server.ask("InspectionService/DrainWorker", request_id="drain", population="phones", worker="w2")
    # It writes checkpoints of both.
    server.end(signal.SIGTERM)
    server.start()
    uploaded = two.upload(kept[2])
    two.upload(kept[4], part=0.5)
    two.hand_in(two.result(kept[2], upload_id=uploaded), two.result(kept[3]),
                two.result(kept[5], failure=dict(message="its disk is full")),
                two.result(kept[6], release=dict(reason="it was told to stop")))
    wrong = contribution(2)
    wrong.outputs[0].dense.shape[0] = 5
    one.hand_in(one.result(lent[2], contribution=wrong.SerializeToString()))
    return {durable: (two, kept[4]), ephemeral: (one, lent[3])}


def finish(server, live):
    """Does what is left of the live rounds' tasks."""
    for worker, lease in live.values():
        worker.hand_in(worker.result(lease))
    three = Worker(server, "w3", gpu="yes")
    for _ in range(200):
        for lease in three.sync(want=8).leases:
            three.hand_in(three.result(lease))
        states = [server.ask("RoundService/GetRound", round=name).round.state for name in live]
        if all(state == round_pb2.SUCCEEDED for state in states):
            return
        time.sleep(0.1)
    sys.exit("the rounds do not end")


def read(server, write):
    """Everything that can be looked at."""
    def ask(method, **fields):
        return write(method, *server.call(method, **fields))

    ask("AccessService/ListTokens")
    ask("InspectionService/ListWorkers", population="phones")
    ask("InspectionService/DescribeQueue", population="phones")
    rounds = ask("RoundService/ListRounds", population="phones").rounds
    for found in rounds:
        ask("RoundService/GetRound", round=found.id)
        for found_task in ask("InspectionService/ListTasks", population="phones", round=found.id).tasks:
            ask("InspectionService/GetTask", task=found_task.id)
        if found.state == round_pb2.SUCCEEDED:
            ask("RoundService/ReadAggregate", round=found.id)
        if found.spec.broadcast_digest:
            ask("BlobService/ReadBlob", digest=found.spec.broadcast_digest)


def main(sheafd, out):
    out = pathlib.Path(out)
    shutil.rmtree(out / "data", ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    data = tempfile.mkdtemp() + "/data"
    token = subprocess.run([sheafd, "--data-dir", data, "--create-operator-token"], capture_output=True, check=True,
                           text=True)
    server = Server(sheafd, data)
    server.authorization = "Bearer " + re.search(r"sheaf_\S+", token.stdout).group(0)
    server.start()
    try:
        record(server, out)
    finally:
        server.end(signal.SIGKILL)


def record(server, out):
    live = fill(server)
    server.end(signal.SIGKILL)
    shutil.copytree(server.data, out / "data")
    server.start()
    with open(out / "answers.tsv", "w") as answers:
        print("authorization", server.authorization, sep="\t", file=answers)
        for worker, lease in live.values():
            print("lease", worker.name, lease.task, lease.lease_token, sep="\t", file=answers)

        def write(method, sent, request, response):
            texts = [json_format.MessageToJson(message, preserving_proto_field_name=True, indent=None)
                     for message in (request, response)]
            assert not any("\t" in text for text in texts)
            print("call", sent, method, *texts, sep="\t", file=answers)
            return response

        read(server, write)
        finish(server, live)
        print("the rest is done", file=answers)
        for name in live:
            for method in ("RoundService/GetRound", "RoundService/ReadAggregate"):
                write(method, *server.call(method, round=name))


if __name__ == "__main__":
    main(*sys.argv[1:])
