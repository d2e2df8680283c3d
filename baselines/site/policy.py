"""The site's file, the only authority over what an experiment may do with a site's data.

A SuperNode is started with ``--node-config 'site="north" site-file="site.yaml"'``. The file is at the site,
is read anew for each message, and no submission can change it. ``provision`` writes one; docs/deployment.md
explains each key. Missing keys have the defaults below.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, get_type_hints

from flwr.app import MessageType
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from baselines.datasets.local import SiteData
from baselines.errors import UserError
from baselines.experiment.experiment import Experiment
from baselines.experiment.validation import describe_type, fits
from clients.privacy import check_demand, refuse_question
from clients.round import requested_corrections
from strategies.shared import protocol

LOCAL_DATA = "baselines.datasets.local"  # the only data set that a site with its own data reads

NO_OPTION = "null"  # no option of a group; a site's file may also use YAML's null


class SiteRefusal(UserError):
    """Refusal of something that the site's owner does not allow.

    Parameters
    ----------
    key : of the site's file, the only detail sent to the server
    line : for the site's own log
    """

    def __init__(self, key: str, line: str) -> None:
        super().__init__(f"{key}: {line}")
        self.public = f"refused by the site's file: {key}"


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The content of a site's file; docs/deployment.md has the same table.

    Parameters
    ----------
    data : the path of the site's data, relative to the file
    columns, label : of a table, the columns that may be read, and the column with the labels; None if the
        data are not a table
    min_rows : with fewer rows the site does not take part
    strategies, experiments : patterns (``fed*``) of the allowed options; ``null`` is an experiment without a
        file in ``conf/experiment``
    privacy, min_noise : what an experiment must promise: ``local`` or ``central`` privacy, and the least
        noise multiplier
    max_epsilon, delta : the most privacy loss of all runs together, as (epsilon, delta); None: no limit
    max_rounds : of one run; its evaluations (one more) and its questions are counted separately
    max_runs_per_day : how many runs may begin within 24 hours
    evaluate : whether the site tests models on its held-out rows; never if ``privacy`` is local or
        ``max_epsilon`` is set
    state : the folder of the audit log, the budgets and the prepared data, relative to the file
    targets : further classes, by full name, that a configuration may name besides those of ``conf``
    """

    data: str = ""
    columns: tuple[str, ...] | None = None
    label: str | None = None
    min_rows: int = 1
    strategies: tuple[str, ...] = ("*",)
    experiments: tuple[str | None, ...] = ("*",)
    privacy: str | None = None
    min_noise: float | None = None
    max_epsilon: float | None = None
    delta: float = 1e-5
    max_rounds: int | None = None
    max_runs_per_day: int | None = None
    evaluate: bool = True
    state: str = "state"
    targets: tuple[str, ...] = ()
    file: Path | None = None  # the file's path; None for a node without a file

    @classmethod
    def of_node(cls, node_config: Mapping[str, object]) -> "Policy":
        """Return the policy of a node's configuration: of its file or, without one, of its few own keys.

        Raises
        ------
        SiteRefusal : for a file that cannot be read, or has invalid content
        """
        name = node_config.get(protocol.SITE_FILE)
        if name is not None:
            return read(Path(str(name)))
        noise = node_config.get(protocol.MIN_NOISE)
        return cls(
            data=str(node_config.get(protocol.DATA, "")),
            privacy=None if protocol.PRIVACY not in node_config else str(node_config[protocol.PRIVACY]),
            min_noise=noise,  # type: ignore[arg-type]  # checked by :func:`check_demand`
        )

    def place(self, path: str) -> Path:
        """Return a path in the file, relative to the file's folder, as absolute."""
        base = self.file.parent if self.file else Path()
        return (base / Path(path).expanduser()).resolve()

    @property
    def state_folder(self) -> Path:
        """The folder of the site's records on experiments."""
        return self.place(self.state)

    def admit(self, experiment: Experiment, message_type: str, config: Mapping[str, Any]) -> None:
        """Refuse what the file does not allow, before any data are read.

        Parameters
        ----------
        experiment : the requested experiment
        message_type, config : of the message

        Raises
        ------
        SiteRefusal : in one line that begins with the file's key
        PrivacyRefusal : for too little privacy
        """
        self._admit_configuration(experiment)
        if self.data:
            self._admit_data(experiment)
        if message_type == MessageType.EVALUATE:
            is_counted = self.privacy == protocol.LOCAL or self.max_epsilon is not None
            if not self.evaluate or is_counted:  # test results have no noise
                raise SiteRefusal("evaluate", "the site tests no models")
        elif message_type == protocol.QUESTION:
            refuse_question(self._demands)
            self._admit_question(experiment, config)
        else:
            self.demand_privacy(config)
            self._admit_requests(experiment, config)

    def _admit_question(self, experiment: Experiment, config: Mapping[str, Any]) -> None:
        """Refuse a question that is not the strategy's, or is on fewer examples than ``min_rows``."""
        question = experiment.prototype.question
        own = {} if question is None else question.config()
        if any(config.get(key) != own.get(key) for key in (protocol.MEASURES, protocol.MEASURED_EXAMPLES)):
            raise SiteRefusal("strategies", "the message asks a question besides the strategy's")
        if question is None:
            raise SiteRefusal("strategies", "the strategy asks no question")
        count = question.num_examples
        if count is not None and count < self.min_rows:
            raise SiteRefusal(
                "min_rows", f"the question is on {count} rows, expected {self.min_rows} or more"
            )

    def _admit_requests(self, experiment: Experiment, config: Mapping[str, Any]) -> None:
        """Refuse corrections that the message requests, but the named strategy does not."""
        requested = experiment.prototype.train_config()
        kinds = requested_corrections(config, experiment.known_corrections)
        if other := [kind.config_key for kind in kinds if not requested.get(kind.config_key)]:
            raise SiteRefusal("strategies", f"the message asks for {', '.join(other)} besides")

    def require_rows(self, count: int) -> None:
        """Refuse to work with fewer rows than ``min_rows``."""
        if count < self.min_rows:
            raise SiteRefusal("min_rows", f"there are {count} rows, expected {self.min_rows} or more")

    def _admit_configuration(self, experiment: Experiment) -> None:
        chosen = experiment.choices
        demands: dict[str, tuple[str, tuple[str | None, ...]]] = {
            "strategies": ("strategy", self.strategies),
            "experiments": ("experiment", self.experiments),
        }
        for key, (group, patterns) in demands.items():
            option = chosen.get(group, NO_OPTION)
            allowed = [NO_OPTION if pattern is None else pattern for pattern in patterns]
            if not any(fnmatchcase(option, pattern) for pattern in allowed):
                raise SiteRefusal(key, f"{group}={option}, expected one of {', '.join(allowed)}")
        if experiment.replaces_strategy:
            raise SiteRefusal("strategies", "strategy._target_ is not that of the option that is named")
        rounds = experiment.settings.rounds
        if self.max_rounds is not None and rounds > self.max_rounds:
            raise SiteRefusal(
                "max_rounds", f"the experiment has {rounds}, expected {self.max_rounds} or fewer"
            )

    def _admit_data(self, experiment: Experiment) -> None:
        """Refuse to read anything but the agreed columns of the site's own data."""
        if experiment.data_source != LOCAL_DATA:
            raise SiteRefusal("data", "the experiment has a data set of its own: expected dataset=local")
        reader = experiment.dataset.site
        assert isinstance(reader, SiteData)
        schema = reader.schema
        if schema.columns is None:
            return
        if self.columns is None or self.label is None:
            raise SiteRefusal(
                "columns", "the site's file does not say which columns of a table may be read"
            )
        if other := [name for name in schema.columns if name not in self.columns]:
            raise SiteRefusal("columns", f"the schema asks for {', '.join(other)}")
        if schema.label != self.label:
            raise SiteRefusal("label", f"the schema has label={schema.label}, expected {self.label}")

    def demand_privacy(self, config: Mapping[str, Any]) -> None:
        """Raise :class:`clients.privacy.PrivacyRefusal` if a message promises too little privacy."""
        check_demand(self._demands, config)

    @property
    def _demands(self) -> dict[str, object]:
        """The file's demands of privacy, as keys of a node's configuration."""
        requested = {protocol.PRIVACY: self.privacy, protocol.MIN_NOISE: self.min_noise}
        settings: dict[str, object] = {key: value for key, value in requested.items() if value is not None}
        if self.max_epsilon is not None:  # epsilon can only be counted with noise
            settings.setdefault(protocol.PRIVACY, protocol.CENTRAL)
        return settings


def read(path: Path) -> Policy:
    """Read a site's file.

    Raises
    ------
    SiteRefusal : for a file that cannot be read, an unknown key, or an invalid value
    """
    kinds = {name: kind for name, kind in get_type_hints(Policy).items() if name != "file"}
    try:
        settings = OmegaConf.create(path.read_text(encoding="utf-8"))
        plain: Any = OmegaConf.to_container(settings, resolve=True)
    except (OSError, UnicodeDecodeError, YAMLError, ValueError, OmegaConfBaseException) as error:
        raise SiteRefusal("it cannot be read", f"{path}: {error}") from error
    if not isinstance(plain, dict):
        raise SiteRefusal("it cannot be read", f"{path}: expected keys and values")
    for key in plain:
        value = settings[key]
        kind = kinds.get(str(key))
        if kind is None:
            raise SiteRefusal("it has an unknown key", f"{path}: {key!s}, expected {', '.join(kinds)}")
        if not fits(value, kind):
            raise SiteRefusal(
                str(key), f"{path}: {key!s}={value}, expected {describe_type(kind, str(key))}"
            )
    values: Any = {key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()}
    policy = Policy(**values, file=path.resolve())
    _require_ranges(policy)
    return policy


def read_leniently(path: Path) -> tuple[Policy, SiteRefusal | None]:
    """Read a site's file; return its error as well. Of a damaged one, only ``state`` is read."""
    try:
        return read(path), None
    except SiteRefusal as error:
        damage = error
    state = Policy.state
    with suppress(OSError, UnicodeDecodeError, YAMLError, ValueError, OmegaConfBaseException):
        settings = OmegaConf.to_container(OmegaConf.create(path.read_text(encoding="utf-8")))
        if isinstance(settings, dict) and isinstance(settings.get("state"), str):
            state = settings["state"]
    return Policy(state=state, file=path.resolve()), damage


def _require_ranges(policy: Policy) -> None:
    """Refuse values out of range."""
    conditions = {
        "privacy": (policy.privacy in (None, protocol.LOCAL, protocol.CENTRAL), "local, central or null"),
        "min_noise": (policy.min_noise is None or policy.min_noise >= 0, "a number, 0 or above"),
        "max_epsilon": (policy.max_epsilon is None or policy.max_epsilon > 0, "a number above 0"),
        "delta": (0 < policy.delta < 1, "in (0, 1)"),
        "min_rows": (policy.min_rows >= 1, "a whole number, 1 or above"),
        "max_rounds": (policy.max_rounds is None or policy.max_rounds >= 1, "1 or above, or null"),
        "max_runs_per_day": (
            policy.max_runs_per_day is None or policy.max_runs_per_day >= 0,
            "0 or above, or null",
        ),
    }
    for key, (valid, expected) in conditions.items():
        if not valid:
            raise SiteRefusal(key, f"{policy.file}: {key}={getattr(policy, key)}, expected {expected}")
