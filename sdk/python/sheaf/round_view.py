"""A round as it was when it was last looked at."""

from __future__ import annotations

from typing import Any

from sheaf.v1 import round_pb2, task_pb2

_FINAL = (round_pb2.SUCCEEDED, round_pb2.FAILED, round_pb2.CANCELLED)


class RoundView:
    """What is known of a round. `message` is the protocol's sheaf.v1.Round."""

    def __init__(self, message: round_pb2.Round) -> None:
        self.message = message

    @property
    def id(self) -> str:
        """"r-" and eight characters."""
        return str(self.message.id)

    @property
    def state(self) -> str:
        """ANNOUNCED, COLLECTING, SEALING, SUCCEEDED, FAILED or CANCELLED."""
        return str(round_pb2.RoundState.Name(self.message.state))

    @property
    def has_ended(self) -> bool:
        """Whether it SUCCEEDED, FAILED or was CANCELLED."""
        return self.message.state in _FINAL

    @property
    def error(self) -> str:
        """Why it failed or was cancelled, in a sentence."""
        return str(self.message.error)

    @property
    def job(self) -> str:
        """Of the rounds of one program."""
        return str(self.message.spec.job)

    @property
    def computation(self) -> str:
        """Name of the computation."""
        return str(self.message.spec.computation.name)

    @property
    def goal(self) -> int:
        """Contributions that complete it."""
        return int(self.message.spec.goal or self.message.spec.open_slots.count or sum(self.tasks.values()))

    @property
    def tasks(self) -> dict[str, int]:
        """How many tasks are in each state: queued, leased, succeeded, failed, cancelled, buried."""
        counts = self.message.tasks
        return {field.name: getattr(counts, field.name) for field in task_pb2.TaskCounts.DESCRIPTOR.fields}

    @property
    def num_contributions(self) -> int:
        """Accepted so far."""
        return int(self.message.num_contributions)

    @property
    def num_clients(self) -> int:
        """That these combine."""
        return int(self.message.num_clients)

    @property
    def contributions_by_staleness(self) -> dict[int, int]:
        """Of a round that continues another: how many contributions came through so many rounds; 0 for its own tasks."""
        return {int(staleness): int(count) for staleness, count in self.message.contributions_by_staleness.items()}

    @property
    def phases(self) -> dict[str, float]:
        """Where its wall time went, in seconds: wait, download, prepare, compute, upload, fold, commit. Once it has ended."""
        phases: Any = self.message.phases
        return {field.name: getattr(phases, field.name).ToNanoseconds() / 1e9
                for field in round_pb2.RoundPhases.DESCRIPTOR.fields}

    def __repr__(self) -> str:
        return f"<sheaf.Round {self.id} of {self.computation}: {self.state}, {self.num_contributions} of {self.goal}>"
