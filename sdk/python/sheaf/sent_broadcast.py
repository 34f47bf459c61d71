"""The broadcast that a loop sent last: of the next one only what changed is sent, as a patch of it.

What a patch is: proto/sheaf/v1/blob_service.proto.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy

from sheaf.broadcast_call import BroadcastCall
from sheaf.calls import Compute, Steps
from sheaf.dtypes import PROTOCOL_NAMES, Array
from sheaf.errors import InvalidArgument, NotFound, ResourceExhausted
from sheaf.row_comparison import RowComparison
from sheaf.safetensors import Encoded
from sheaf.transfer import INLINE_BYTES_MAX, Content

A = TypeVar("A")

# Patches that lie upon one whole: as many as servers take.
PATCHES_MAX = 32
_BASE = "sheaf.base"
_INDEX_BYTES = 8
# What one more tensor takes in the header, about.
_ENTRY_BYTES = 128


class SentBroadcast:
    """One loop's: a copy of what was sent last, and how the server knows it. For drivers: `send` is an operation.

        sent = SentBroadcast()
        answer = yield from sent.send({"table": table}, BroadcastCall(OPEN_ROUND, request, request, "default", (ResourceExhausted,)))

    What fits a call, and what goes to a server that takes no patches, is not kept.
    """

    def __init__(self) -> None:
        self._comparison = RowComparison()
        self._takes_patches = True
        # Little-endian and C-contiguous.
        self._kept: dict[str, Array] = {}
        # Of what the server has that stands for what is kept; "" while that is not known.
        self._digest = ""
        self._whole_bytes = self._patches_bytes = self._num_patches = 0

    def send(self, tensors: Mapping[str, Array], opening: BroadcastCall[A]) -> Steps[A]:
        """The call with these tensors as its broadcast. A patch is tried if that is less, and else, or if it is refused, the
        whole is sent. The errors of `opening`, and InvalidArgument for a dtype that safetensors does not have."""
        if self._fits(tensors):
            base, self._digest = self._digest, ""
            changes: dict[str, Array | None] = yield Compute(lambda: self._update(tensors))
            if base:
                try:
                    if not changes:
                        answer = yield from opening.naming(base)
                        self._digest = base
                        return answer
                    patch = self._patch(base, changes)
                    if patch is not None:
                        answer, uploaded = yield from opening.bringing(patch)
                        self._digest = uploaded.digest
                        self._num_patches += 1
                        self._patches_bytes += patch.size
                        return answer
                except (InvalidArgument, NotFound, ResourceExhausted):
                    # The server has the base no more, or takes no further patch of it. If it was about something else, it says
                    # so again.
                    pass
            whole = Content(Encoded(self._kept))
        else:
            self._kept, self._digest = {}, ""
            size = Encoded(tensors).size
            if size > INLINE_BYTES_MAX and self._takes_patches:
                yield Compute(lambda: self._keep(tensors))
            # What is sent is what is kept, whatever happens to the tensors meanwhile.
            whole = Content(Encoded(self._kept or tensors))
        answer, uploaded = yield from opening.bringing(whole)
        if whole.size > INLINE_BYTES_MAX:
            self._takes_patches = uploaded.takes_patches
        if self._kept and self._takes_patches:
            self._digest = uploaded.digest
            self._whole_bytes, self._patches_bytes, self._num_patches = whole.size, 0, 0
        else:
            self._kept = {}
        return answer

    def _fits(self, tensors: Mapping[str, Array]) -> bool:
        """Whether they have the names, dtypes and shapes of what is kept."""
        kept = self._kept
        return bool(kept) and tensors.keys() == kept.keys() and all(
            array.shape == kept[name].shape and array.dtype.newbyteorder("<") == kept[name].dtype
            for name, array in tensors.items()
        )

    def _keep(self, tensors: Mapping[str, Array]) -> None:
        try:
            self._kept = {
                name: numpy.array(array, array.dtype.newbyteorder("<"), order="C") for name, array in tensors.items()
            }
        except MemoryError:
            # It is sent without a copy, as a single round's.
            self._kept = {}

    def _update(self, tensors: Mapping[str, Array]) -> dict[str, Array | None]:
        """Brings what is kept up to date. Of each tensor that changed the rows that did, or None where it goes whole."""
        changes = {}
        for name, array in tensors.items():
            rows = self._comparison.update(self._kept[name], array, self._rows_max(name))
            if rows is None or len(rows):
                changes[name] = rows
        return changes

    def _rows_max(self, name: str) -> int:
        """How many of its rows take no more than all of it."""
        kept = self._kept[name]
        # Servers select rows of the types that they compute with, and of bytes.
        if kept.dtype not in PROTOCOL_NAMES and kept.dtype != numpy.uint8:
            return 0
        if kept.ndim == 0 or len(kept) == 0 or f"{name}.indices" in self._kept or f"{name}.values" in self._kept:
            return 0
        return max((kept.nbytes - _ENTRY_BYTES) // (_INDEX_BYTES + kept.nbytes // len(kept)), 0)

    def _patch(self, base: str, changes: Mapping[str, Array | None]) -> Content | None:
        """The changes as a file. None if the whole is to be sent instead."""
        most = self._whole_bytes - self._patches_bytes
        if self._num_patches >= PATCHES_MAX or sum(self._size(name, rows) for name, rows in changes.items()) > most:
            return None
        tensors: dict[str, Array] = {}
        for name, rows in changes.items():
            kept = self._kept[name]
            tensors |= {name: kept} if rows is None else {f"{name}.indices": rows, f"{name}.values": kept[rows]}
        patch = Content(Encoded(tensors, {_BASE: base}))
        return patch if patch.size <= most else None

    def _size(self, name: str, rows: Array | None) -> int:
        kept = self._kept[name]
        return kept.nbytes if rows is None else len(rows) * (_INDEX_BYTES + kept.nbytes // len(kept))
