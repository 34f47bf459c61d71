"""What a computation returns, or raises."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any


class Update(Mapping[str, Any]):
    """The values of one client: a number, array, `sheaf.Sparse`, `sheaf.Keyed` or dict for each output of the round.

        return sheaf.Update({"age": ages.mean()}, weight=len(ages), loss=0.31)

    weight: for the weighted operators; above 0, rounded to float32. metrics, and further arguments: numbers for people to
    look at; the round shows their mean over all clients, never those of one. ValueError if a number is not finite.
    """

    __slots__ = ("values_by_name", "weight", "metrics")

    def __init__(self, values: Mapping[str, Any], weight: float = 1, metrics: Mapping[str, float] | None = None,
                 **more_metrics: float) -> None:
        self.values_by_name = values
        self.weight = float(weight)
        if not (self.weight > 0 and math.isfinite(self.weight)):
            raise ValueError(f"a weight is a finite number above 0, and not {weight}; a client without data has nothing to "
                             "return: raise sheaf.Declined")
        self.metrics = {name: float(value) for name, value in {**(metrics or {}), **more_metrics}.items()}
        for name, value in self.metrics.items():
            if name == "weight" or not math.isfinite(value):
                raise ValueError(f"the metric {name!r} is {value}; metrics are finite, and none is called 'weight'")

    def __getitem__(self, name: str) -> Any:
        return self.values_by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)

    def __repr__(self) -> str:
        return f"<sheaf.Update of {', '.join(self)}, weight {self.weight:g}>"

    def numbers(self) -> dict[str, float]:
        """The weight and the metrics, as metrics.json has them."""
        return {"weight": self.weight, **self.metrics}


class Declined(Exception):
    """Raise it where there is no data that the task is about. The worker gives the task back; that is no failure.

    What it says stays in the worker's log.
    """


class WrongTask(Exception):
    """Raise it if the task itself is wrong, so that no worker could do better. The task fails at once."""
