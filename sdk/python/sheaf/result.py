"""What a round released."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from sheaf.dtypes import Array
from sheaf.errors import DataLoss, InvalidArgument
from sheaf.keyed import Keyed
from sheaf.round_view import RoundView
from sheaf.safetensors import Safetensors
from sheaf.sparse import Sparse


@dataclasses.dataclass(frozen=True)
class Summary:
    """What is known of one output.

    divisor: what each released value was divided by, in words. divisor_value: its value where one number serves all, else 0.
    touched: coordinates or keys that at least one contribution touched. released: those in the result.
    """

    divisor: str
    divisor_value: float
    touched: int
    released: int


class Result(Mapping[str, Any]):
    """The values that a round released, by the names of its outputs.

        result["w"]                      # A numpy array, a sheaf.Sparse or a sheaf.Keyed, as the output's operator releases.

    Arrays are views of the downloaded bytes, not copies; a number is an array of shape (). `round` is the round, ended.
    """

    def __init__(self, round: RoundView, file: Array) -> None:
        self.round = round
        self._names = [output.name for output in round.message.spec.aggregate.outputs]
        self._values: dict[str, Any] = {}
        try:
            self._tensors = Safetensors(file, what=f"the aggregate of round {round.id}")
        except InvalidArgument as error:
            raise DataLoss(str(error)) from None

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            if name not in self._names:
                raise KeyError(f"round {self.round.id} has no output {name!r}; it has {', '.join(self._names)}")
            try:
                self._values[name] = self._value(name)
            except (KeyError, InvalidArgument) as error:
                raise DataLoss(f"output {name!r} of round {self.round.id}: {error}") from None
        return self._values[name]

    def _value(self, name: str) -> Any:
        tensors = self._tensors
        if name in tensors:
            return tensors[name]
        if f"{name}.indices" in tensors:
            shape = tensors[f"{name}.dense_shape"].tolist()
            return Sparse(tensors[f"{name}.indices"], tensors[f"{name}.values"], shape)
        offsets = tensors[f"{name}.key_offsets"] if f"{name}.key_offsets" in tensors else None
        return Keyed.from_tensors(tensors[f"{name}.keys"], offsets, tensors[f"{name}.values"])

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"<sheaf.Result of {self.round.id}: {', '.join(self._names)}; {self.num_clients} clients>"

    @property
    def num_clients(self) -> int:
        """Clients that it combines."""
        return int(self.round.message.aggregate.num_clients)

    @property
    def num_contributions(self) -> int:
        """Contributions that it combines; one may combine several clients."""
        return int(self.round.message.aggregate.num_contributions)

    @property
    def metrics(self) -> dict[str, float]:
        """Means over all clients of the metrics that they returned."""
        return dict(self.round.message.metrics)

    @property
    def phases(self) -> dict[str, float]:
        """Where the round's wall time went, in seconds; together they are all of it."""
        return self.round.phases

    @property
    def summaries(self) -> dict[str, Summary]:
        """For each output: its divisor, and how much was touched and released."""
        return {output.name: Summary(output.divisor, output.divisor_value, output.touched, output.released)
                for output in self.round.message.aggregate.outputs}

    def save(self, path: Any) -> None:
        """Writes all values to a safetensors file."""
        from sheaf import safetensors

        safetensors.write(path, self._tensors, self._tensors.metadata)
