"""A bar on the terminal while somebody waits for a round, where there is a terminal, and tqdm."""

from __future__ import annotations

import sys
from typing import Any

from sheaf.round_view import RoundView


class ProgressBar:
    """Shows how many contributions a round has. `wanted`: None shows it on terminals only."""

    def __init__(self, id: str, wanted: bool | None) -> None:
        self._id = id
        self._wanted = wanted if wanted is not None else sys.stderr.isatty()
        self._bar: Any = None

    def __enter__(self) -> ProgressBar:
        if self._wanted:
            try:
                import tqdm.auto
            except ImportError:
                return self
            # Appears when there is something to wait for.
            self._bar = tqdm.auto.tqdm(desc=self._id, unit=" tasks", delay=0.2, leave=False, dynamic_ncols=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def show(self, round: RoundView) -> None:
        if self._bar is None:
            return
        self._bar.total = round.goal
        self._bar.n = round.num_contributions
        tasks = round.tasks
        self._bar.set_postfix_str(", ".join(f"{tasks[state]} {state}" for state in ("leased", "queued", "buried")
                                            if tasks[state]), refresh=False)
        self._bar.update(0)
        self._bar.refresh()
