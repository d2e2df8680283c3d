"""A run's settings besides its parts, as plain values under their names in config.yaml."""

from dataclasses import dataclass, fields

from omegaconf import DictConfig

DEVICES = "cpu, cuda, mps, xpu or auto"  # by the names that torch gives them


@dataclass(frozen=True)
class Evaluation:
    """What else is measured of the models."""

    max_share: float | None
    node_spread: bool
    per_class: bool
    per_node: bool


@dataclass(frozen=True)
class EarlyStopping:
    """When a run ends before its last round."""

    patience: int | None
    metric: str


GROUPS = {"evaluation": Evaluation, "early_stopping": EarlyStopping}


@dataclass(frozen=True)
class Settings:
    """The plain values of an experiment; conf/config.yaml says what each of them means."""

    seed: int
    rounds: int
    num_nodes: int
    nodes_per_round: int | None
    node_test_fraction: float
    central_test: str
    validation_size: int
    evaluate_every: int
    timeout: float
    quorum: int | None
    round_deadline: float | None
    device: str
    device_memory_share: float
    threads: int
    resume: bool | None
    checkpoint_every: int
    checkpoint_keep: int
    objective: str
    count_bytes: bool | str
    save: str | None
    evaluation: Evaluation
    early_stopping: EarlyStopping

    @classmethod
    def of(cls, cfg: DictConfig) -> "Settings":
        """Return those of a configuration."""
        plain = {field.name: cfg[field.name] for field in fields(cls) if field.name not in GROUPS}
        return cls(**plain, **{name: kind(**cfg[name]) for name, kind in GROUPS.items()})

    @property
    def validates(self) -> bool:
        """Whether models are evaluated on the validation examples: where somebody asks for it."""
        stops = self.early_stopping.metric if self.early_stopping.patience is not None else ""
        return any(name.startswith("validation/") for name in (self.objective, stops))

    @property
    def nodes_in_round(self) -> int:
        """How many nodes train in a round."""
        return min(self.nodes_per_round or self.num_nodes, self.num_nodes)
