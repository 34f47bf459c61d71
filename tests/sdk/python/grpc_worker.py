"""A worker in this process, over gRPC: computes tasks with functions of a test, and hands in what they return.

It takes the same way from a function to a contribution as a program under sheaf-worker does: a LeasedTask, checked outputs,
their tensors. docs/guides/write-a-worker.md explains the loop.
"""

import base64
import json
import secrets
import threading

import grpc
import numpy

import sheaf
from sheaf.computations import Computation
from sheaf.declared_output import DeclaredOutput, tensors_of
from sheaf.dtypes import PROTOCOL_NAMES, SAFETENSORS_NAMES
from sheaf.leased_task import LeasedTask
from sheaf.safetensors import Safetensors
from sheaf.v1 import aggregation_pb2, blob_service_pb2, tensor_pb2, work_service_pb2

OPERANDS = {"keyed_sum": "keyed", **dict.fromkeys(("sum", "mean", "weighted_mean", "min", "max", "count"), "dense")}
DTYPES = {name: dtype for dtype, name in PROTOCOL_NAMES.items()}


def json_or_bytes(data):
    if not data:
        return None
    try:
        return json.loads(data)
    except ValueError:
        return {"base64": base64.b64encode(data).decode()}


def entry_of(lease):
    """The content of task.json."""
    outputs = []
    for output in lease.aggregate.outputs:
        operand = OPERANDS.get(output.operator, "sparse")
        entry = {"name": output.name, "operator": output.operator, "operand": operand,
                 "dtype": SAFETENSORS_NAMES[DTYPES[tensor_pb2.DType.Name(output.dtype)]], "shape": list(output.dense_shape)}
        if operand == "sparse":
            entry["index_dims"] = output.index_dims or (1 if output.operator == "slices_sum" else len(output.dense_shape))
        if operand == "keyed":
            entry["key_type"] = aggregation_pb2.KeyType.Name(output.key_type)
        outputs.append(entry)
    return {
        "version": 1, "computation": lease.computation.name, "config": json_or_bytes(lease.computation.config),
        "payload": json_or_bytes(lease.payload), "round": lease.round, "task": lease.task, "attempt": lease.attempt,
        "seed": 1, "seconds": None, "data_selector": lease.data_selector, "data": {}, "min_clients": lease.min_clients,
        "broadcast": lease.broadcast_digest or None,
        "numerics": aggregation_pb2.Numerics.Name(lease.aggregate.numerics or 1), "outputs": outputs,
    }


def tensor(array):
    dtype = tensor_pb2.DType.Value("UINT8" if array.dtype == numpy.uint8 else PROTOCOL_NAMES[array.dtype])
    return tensor_pb2.Tensor(dtype=dtype, shape=array.shape, data=array.tobytes())


def contribution_of(update, outputs):
    contribution = aggregation_pb2.Contribution(weight=update.weight, metrics=update.metrics)
    tensors = tensors_of(update, outputs)
    for output in outputs:
        name = output.name
        value = contribution.outputs.add(name=name)
        if output.operand == "dense":
            value.dense.CopyFrom(tensor(tensors[name]))
        elif output.operand == "sparse":
            value.sparse.dense_shape.extend(output.shape)
            value.sparse.indices.CopyFrom(tensor(tensors[f"{name}.indices"]))
            value.sparse.values.CopyFrom(tensor(tensors[f"{name}.values"]))
        else:
            value.keyed.values.CopyFrom(tensor(tensors[f"{name}.values"]))
            if f"{name}.key_offsets" in tensors:
                joined, offsets = tensors[f"{name}.keys"].tobytes(), tensors[f"{name}.key_offsets"].tolist()
                value.keyed.string_keys.extend(joined[a:b] for a, b in zip(offsets, offsets[1:]))
            else:
                value.keyed.int_keys.CopyFrom(tensor(tensors[f"{name}.keys"]))
    return contribution


class GrpcWorker:
    """Offers `computations` (functions by name) until it is closed."""

    def __init__(self, address, computations, name=None, data=None):
        self._channel = grpc.insecure_channel(address, [("grpc.max_receive_message_length", 64 << 20),
                                                        ("grpc.max_reconnect_backoff_ms", 1000)])
        self._computations = {name: Computation(function, name) for name, function in computations.items()}
        self._name = name or f"w-{secrets.token_hex(4)}"
        self._data = data or {}
        self._open = None
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def close(self):
        self._is_closed.set()
        # More than once: a call may begin while this looks.
        while self._thread.is_alive():
            if self._open is not None:
                self._open.cancel()
            self._thread.join(0.05)
        self._channel.close()

    def _call(self, service, method, request, response_type):
        stub = self._channel.unary_unary(f"/sheaf.v1.{service}/{method}", type(request).SerializeToString,
                                         response_type.FromString)
        while True:
            self._open = stub.future(request, timeout=60, wait_for_ready=True)
            try:
                return self._open.result()
            except (grpc.RpcError, grpc.FutureCancelledError):
                if self._is_closed.wait(0.05):
                    raise

    def _work(self):
        results = []
        while not self._is_closed.is_set():
            request = work_service_pb2.SyncRequest(protocol_version=1, worker=self._name, want=16, results=results,
                                                   poll_id=secrets.token_hex(8))
            request.wait.seconds = 20
            for name in self._computations:
                request.computations.add(name=name, version=1)
            try:
                answer = self._call("WorkService", "Sync", request, work_service_pb2.SyncResponse)
            except (grpc.RpcError, grpc.FutureCancelledError):
                return
            results = [self._result(lease) for lease in answer.leases]

    def _result(self, lease):
        result = work_service_pb2.TaskResult(task=lease.task, lease_token=lease.lease_token)
        entry = {**entry_of(lease), "data": self._data}
        try:
            updates = list(self._computations[entry["computation"]].updates(LeasedTask(entry, _Runner(self, entry))))
            assert len(updates) == 1, "only sheaf-worker combines clients"
            outputs = [DeclaredOutput.parse(output) for output in entry["outputs"]]
            result.contribution = contribution_of(updates[0], outputs).SerializeToString()
        except Exception as error:  # Whatever it is, the test hears of it through the server.
            result.failure.message = f"{type(error).__name__}: {error}"
            result.failure.permanent = isinstance(error, sheaf.WrongTask)
        return result


class _Runner:
    def __init__(self, worker, entry):
        self._worker, self._entry = worker, entry

    def broadcast(self):
        data = b""
        while True:
            request = blob_service_pb2.ReadBlobRequest(digest=self._entry["broadcast"], offset=len(data))
            answer = self._worker._call("BlobService", "ReadBlob", request, blob_service_pb2.ReadBlobResponse)
            data += answer.data
            if len(data) == answer.size_bytes:
                return Safetensors(data)

    def rows(self, wanted):
        broadcast = self.broadcast()
        return {name: broadcast[name][rows].copy() for name, rows in wanted.items()}

    def progress(self, done):
        """The lease is longer than any test."""
