"""Settings: what a run is told besides its parts, as plain values under their names in config.yaml."""

from dataclasses import dataclass, fields

from omegaconf import DictConfig


@dataclass(frozen=True)
class Settings:
    """The plain values of an experiment; conf/config.yaml says what each of them means."""

    seed: int
    rounds: int
    num_nodes: int
    nodes_per_round: int | None
    node_test_fraction: float
    validation_size: int
    evaluate_every: int
    max_failed_rounds: int
    timeout: float
    device: str
    threads: int
    deterministic: bool
    debug: bool
    resume: bool
    checkpoint_every: int
    objective: str

    @classmethod
    def of(cls, cfg: DictConfig) -> "Settings":
        """Return those of a configuration."""
        return cls(**{field.name: cfg[field.name] for field in fields(cls)})

    @property
    def asked(self) -> int:
        """How many nodes train in a round."""
        return min(self.nodes_per_round or self.num_nodes, self.num_nodes)
