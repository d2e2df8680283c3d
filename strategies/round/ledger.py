"""Ledger: what each node has contributed to a run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass
class Ledger:
    """By partition: how many ``updates`` were sound, how often it was ``left_out``, and on how many
    ``examples`` it trained last.
    """

    kept: dict[int, dict[str, int]] = field(default_factory=dict)

    def note(self, examples: Mapping[int, int], left_out: Iterable[int]) -> None:
        """Count a round: {partition: examples} of the sound updates, and who was asked in vain."""
        for partition_id, count in examples.items():
            entry = self._of(partition_id)
            entry["updates"] += 1
            entry["examples"] = count
        for partition_id in left_out:
            self._of(partition_id)["left_out"] += 1

    def _of(self, partition_id: int) -> dict[str, int]:
        return self.kept.setdefault(partition_id, {"updates": 0, "left_out": 0, "examples": 0})

    def state_dict(self) -> dict[int, dict[str, int]]:
        """Return what a run resumes from."""
        return {k: dict(entry) for k, entry in self.kept.items()}

    def load_state_dict(self, state: dict[int, dict[str, int]]) -> None:
        """Put back what ``state_dict`` gave; the state stays the caller's own."""
        self.kept.update({k: dict(entry) for k, entry in state.items()})
