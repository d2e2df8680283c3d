"""All rounds of one run: train, aggregate, evaluate, write down."""

import contextlib
import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord

from baselines.errors import UserError
from baselines.experiment.experiment import Experiment
from baselines.experiment.hydra_callbacks import current_sweep, run_prefix
from baselines.grids.base import SuiteGrid
from baselines.grids.superlink import PollingGrid
from strategies import TooManyFailedRounds
from strategies.shared.arrays import move_record

from . import resume
from .checkpoint import Checkpoint, UndeclaredStateCheck
from .environment import merge_usage
from .evaluation import Evaluator, ServerEvaluation
from .loggers import Progress
from .metrics import (
    GLOBAL_MODEL,
    OWN_GROUP,
    SITE_TEST,
    SITE_TRAIN,
    RoundBytes,
    best_round,
    check_divergence,
    count_round_bytes,
    describe_stop,
    find_rare_nodes,
    node_spread,
    per_node_metrics,
    place_of,
    scalars,
    should_stop,
    summarise_sites,
)
from .run_folder import RunFolder, check_overwriting

if TYPE_CHECKING:
    from .virtual_time import VirtualTime

logger = logging.getLogger("flwr")


def run_rounds(experiment: Experiment, grid: SuiteGrid, folder: RunFolder) -> None:
    """Run the experiment on ``grid``; each round's metrics are on disk before the next one ends.

    Raises
    ------
    UserError : when the run cannot be resumed, or its checkpoints could not be
    RunDiverged : when its last evaluation is not finite
    """
    require_clock(experiment, grid.gives_node_states)
    with folder.alone():  # another process may have run it in the meantime
        if experiment.settings.resume and resume.is_finished(experiment, folder.path):
            logger.warning("another process has finished %s meanwhile", folder.path)
            check_divergence(experiment, folder.path)
            return
        if experiment.settings.checkpoint_every:
            resume.check_resumable(experiment, grid.gives_node_states)
        check_overwriting(experiment, folder.path)
        saved = resume.find_checkpoint(experiment, folder.path) if experiment.settings.resume else None
        _run(experiment, grid, folder, saved)


def require_clock(experiment: Experiment, has_simulated_nodes: bool) -> None:
    """Refuse an asynchronous strategy with real nodes and a clock, simulated ones without, or a quorum."""
    strategy, clock, quorum = experiment.prototype, experiment.clock, experiment.settings.quorum
    if not strategy.is_asynchronous:
        return
    if clock is None and has_simulated_nodes:
        raise UserError(
            f"clock=none with strategy={strategy.name}: simulated nodes take no time of their own; choose "
            "clock=lognormal, constant or trace, or runtime=superlink"
        )
    if clock is not None and not has_simulated_nodes:
        raise UserError(
            f"strategy={strategy.name} orders replies by a simulated clock, and on a SuperLink time is real: "
            "add clock=none, or choose runtime=inline or ray"
        )
    if quorum is not None:
        raise UserError(
            f"quorum={quorum} ends rounds that wait for all, and strategy={strategy.name} waits for its buffer: "
            "set quorum=null and round_deadline=null"
        )


def _run(experiment: Experiment, grid: SuiteGrid, folder: RunFolder, saved: Checkpoint | None) -> None:
    progress = Progress(experiment.settings.rounds, run_prefix(), current_sweep())
    rounds = Rounds(experiment, grid, folder, progress)
    with folder.running(saved, rounds.describe, grid.way), progress:
        try:
            rounds.run(saved)
        except TooManyFailedRounds:
            check_divergence(experiment, folder.path)  # the likely cause
            raise
        check_divergence(experiment, folder.path)


def _evaluator_of(experiment: Experiment, grid: SuiteGrid) -> Evaluator:
    """Return an evaluator: on the grid's workers, if it has any, else in this process."""
    if grid.dispatch is None:
        return Evaluator(experiment)
    from .ray_evaluator import RayEvaluator  # imports Ray

    return RayEvaluator(experiment, grid.dispatch)


def _virtual_time_of(experiment: Experiment) -> "VirtualTime | None":
    """Return the rounds' virtual time; None without a clock, or where the strategy keeps it."""
    if experiment.clock is None or experiment.prototype.is_asynchronous:
        return None
    from .virtual_time import VirtualTime  # not needed without a clock

    return VirtualTime(experiment.clock, experiment.settings.seed)


class Rounds:
    """The state of a run, and the steps that continue it."""

    def __init__(
        self, experiment: Experiment, grid: SuiteGrid, folder: RunFolder, progress: Progress
    ) -> None:
        self.experiment, self.grid, self.folder, self.progress = experiment, grid, folder, progress
        self.strategy = experiment.strategy()
        self.arrays = self._placed(experiment.initial_arrays())
        self.train_config = experiment.train_config()
        self.evaluation = ServerEvaluation(experiment, _evaluator_of(experiment, grid), folder, progress)
        self.virtual_time = _virtual_time_of(experiment)
        self._on_nodes: dict[str, float] = {}  # metrics of the nodes' last evaluation
        self._used: dict[str, Any] = {}  # resource usage of the nodes' own processes
        if experiment.settings.evaluation.per_node:
            self.strategy.measure_norms()
        if self.strategy.needs_server_data:
            self.strategy.set_server_data(self.evaluation.evaluator)

    def run(self, saved: Checkpoint | None) -> None:
        """Run the remaining rounds, evaluate and save."""
        settings = self.experiment.settings
        own_state = UndeclaredStateCheck(self.strategy) if settings.checkpoint_every else None
        if saved:
            self.resume_from(saved)
        else:
            self.evaluate(0)
        server_round = before = saved.server_round if saved else 0
        evaluated = before > 0 and before % settings.evaluate_every == 0
        over = self.strategy.stop_reason or (evaluated and self.is_over(before))
        first_over = before + 1 if over else settings.rounds + 1
        for server_round in range(before + 1, first_over):
            self.train(server_round)
            last = server_round == settings.rounds or bool(self.strategy.stop_reason)
            if server_round % settings.evaluate_every == 0 or last:
                self.evaluate_on_nodes(server_round)
                self.evaluate(server_round)
                last = last or self.is_over(server_round)
            else:
                self.progress.show(server_round, {})
            if own_state is not None:
                own_state.check()
                if server_round % settings.checkpoint_every == 0 or last:
                    self.checkpoint(server_round).save(self.folder.path, settings.checkpoint_keep)
            if last:
                break
        self.end(server_round)

    def describe(self) -> dict[str, Any]:
        """Return what environment.json records of the nodes; for a deployment, also who took part."""
        stopping = self.experiment.settings.early_stopping
        lost = self._used | {"lost": self.grid.lost} | describe_stop(self.folder.path, stopping)
        if self.strategy.stop_reason:
            lost["over"] = self.strategy.stop_reason
        if self.grid.gives_node_states and self.experiment.dataset.site is None:  # simulated
            return lost
        contributions = {"contributions": self.strategy.participation_counts()}
        return lost | self.grid.deployment() | contributions

    def train(self, server_round: int) -> None:
        """Train one round; the previous round's models are evaluated meanwhile, where the grid can."""
        started = time.perf_counter()
        try:
            messages = list(
                self.strategy.configure_train(server_round, self.arrays, self.train_config, self.grid)
            )
            replies = self._exchange(messages)
            answered = time.perf_counter()
            counted = self._sent(messages, replies)
            virtual: dict[str, float] = {}
            if self.virtual_time is not None:
                replies, passed_over, virtual["virtual_seconds"] = self.virtual_time.receive(
                    messages, replies
                )
                self.strategy.stop_awaiting(passed_over)
            arrays, metrics = self.strategy.aggregate_train(server_round, replies)
            ended = time.perf_counter()
        except Exception:
            with contextlib.suppress(Exception):
                self.evaluation.finish()
            raise
        self.evaluation.finish()  # keeps the rounds' rows in order
        self.arrays = arrays if arrays is not None else self.arrays
        times = {"seconds": ended - started, "server_seconds": ended - answered}
        in_all = counted.pop(GLOBAL_MODEL, {})
        self.folder.write(server_round, "train", GLOBAL_MODEL, scalars(metrics) | virtual | times | in_all)
        own = per_node_metrics(replies) if self.experiment.settings.evaluation.per_node else {}
        for name, norm in self.strategy.update_norms().items():
            own.setdefault(name, {})["update_norm"] = norm
        for node in sorted(own | counted, key=place_of):  # replies come in any order
            metrics_of_node = own.get(node, {}) | counted.get(node, {})
            self.folder.write(server_round, SITE_TRAIN, node, metrics_of_node, is_one_of=True)

    def _exchange(self, messages: list[Message]) -> list[Message]:
        """Send the round's messages; return the replies that end it, some perhaps to earlier messages."""
        has_enough, timeout = self.strategy.has_enough, self.experiment.settings.timeout
        if has_enough is None:
            return list(self.grid.send_and_receive(messages, timeout=timeout))
        assert isinstance(self.grid, PollingGrid)  # require_clock
        return self.grid.receive_arrivals(messages, has_enough, timeout)

    def _sent(self, messages: list[Message], replies: list[Message]) -> dict[str, RoundBytes]:
        """Return the round's bytes, if counted: in all and by node; of sites in all only."""
        count_bytes = self.experiment.settings.count_bytes
        if not count_bytes:
            return {}
        questions, answers = self.strategy.question_messages()
        exchanged = [*questions, *messages], [*answers, *replies]
        counted = count_round_bytes(
            *exchanged, count_bytes == "compressed", self.strategy.known_partitions()
        )
        return counted if self.experiment.dataset.site is None else {GLOBAL_MODEL: counted[GLOBAL_MODEL]}

    def evaluate(self, server_round: int) -> None:
        """Begin to evaluate the models on the server's examples; without any, use the nodes' metrics."""
        models = self.strategy.models_to_evaluate(self.arrays)
        weights = [self.strategy.model_weight(name) for name in models]
        self.evaluation.begin(server_round, models, weights, self._owners(models), self._on_nodes)

    def _owners(self, models: Iterable[str]) -> list[int | None]:
        return [self.strategy.owner_of(name) for name in models]

    def is_over(self, server_round: int) -> bool:
        """Say whether early stopping ends the run after this round, which has been evaluated."""
        stopping = self.experiment.settings.early_stopping
        if stopping.patience is not None:
            self.evaluation.finish()
        is_over = should_stop(self.folder.path, stopping, server_round)
        if is_over and server_round < self.experiment.settings.rounds:
            logger.info(
                "early stopping ended the run at round %d: %s was best in round %d",
                *(server_round, stopping.metric, best_round(self.folder.path, stopping.metric) or 0),
            )
        return is_over

    def end(self, server_round: int) -> None:
        """Record the last models' evaluation, and why the run ended."""
        if self.strategy.stop_reason:
            logger.warning("the run ends after round %d: %s", server_round, self.strategy.stop_reason)
        if absent := find_rare_nodes(self.strategy.participation_counts()):
            logger.warning("answered in less than half of the rounds that asked them: %s", absent)
        models = self.strategy.models_to_evaluate(self.arrays)
        self.evaluation.end(server_round, models, self._owners(models))
        if self.grid.dispatch is not None:
            self._used = merge_usage(self.grid.used())

    def checkpoint(self, server_round: int) -> Checkpoint:
        """Return everything that later rounds depend on."""
        self.evaluation.finish()
        return Checkpoint(
            server_round=server_round,
            rounds=self.experiment.settings.rounds,
            arrays=self.arrays,
            strategy=self.strategy.state_dict(),
            nodes=self.grid.node_states(),
            **self.folder.position(),
        )

    def resume_from(self, saved: Checkpoint) -> None:
        """Continue from a checkpoint."""
        self.arrays = self._placed(saved.arrays)
        saved.restore(self.strategy)
        if self.virtual_time is not None:
            self.virtual_time.resume_from(self.folder.path, saved.server_round)
        if saved.nodes is not None:
            self.grid.load_node_states(saved.nodes)
        self.evaluation.resume_from(saved.server_round, self.strategy.models_to_evaluate(self.arrays))

    def _placed(self, arrays: ArrayRecord) -> ArrayRecord:
        """Move the model to the device of this process' nodes, if any; the server computes there, too."""
        return move_record(arrays, self.experiment.device) if self.grid.keeps_arrays else arrays

    def evaluate_on_nodes(self, server_round: int) -> None:
        """Evaluate on the nodes, where they keep test data."""
        if self.experiment.settings.node_test_fraction == 0:
            return
        requests = self.strategy.configure_evaluate(server_round, self.arrays, ConfigRecord(), self.grid)
        answers = self.grid.send_and_receive(requests, timeout=self.experiment.settings.timeout)
        answers = list(answers)
        on_nodes = self.strategy.aggregate_evaluate(server_round, answers)
        self._on_nodes = scalars(on_nodes)
        spreads = self.experiment.settings.evaluation.node_spread
        more = node_spread(answers) if spreads else {}
        names = list(self.strategy.models_to_evaluate(self.arrays))
        name = names[0] if len(names) == 1 else OWN_GROUP
        alone = not len(self.experiment.test_examples)
        site_metrics = self.strategy.per_site_metrics() if alone or spreads else {}
        per_site_metrics = {
            site: scalars(MetricRecord(dict(metrics))) for site, metrics in site_metrics.items()
        }
        site_summary = summarise_sites(per_site_metrics) if alone else {}
        self.folder.write(server_round, "node-test", name, self._on_nodes | site_summary | more)
        for site, metrics in per_site_metrics.items():
            self.folder.write(server_round, SITE_TEST, site, metrics, is_one_of=True)
