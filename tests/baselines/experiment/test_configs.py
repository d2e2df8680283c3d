"""Every file in conf composes, and what it names can be built."""

import pytest
import torch
from hydra.utils import get_method, get_object
from omegaconf import OmegaConf
from torch import nn

from baselines.errors import UserError
from baselines.experiment import config
from baselines.experiment.experiment import Experiment
from baselines.experiment.overrides import CONF
from clients import LocalTraining
from strategies import PseudoGradientStrategy

FILES = sorted(path.relative_to(CONF).with_suffix("") for path in CONF.rglob("*.yaml"))
EXPERIMENTS = [path.relative_to("experiment").as_posix() for path in FILES if path.parts[0] == "experiment"]
OPTIONS = [
    (path.parts[0], path.name)
    for path in FILES
    if len(path.parts) == 2 and path.parts[0] != "experiment" and path.name != "base"
]
SHAPES = ("[1,8,8]", "[1,28,28]", "[3,32,32]", "[1000]")
NEEDS = {  # what an option asks for, in one line, when it is chosen alone
    "weighting=erosion": "weighting.requester=0",
    "model=linear": "dataset=synthetic",
    "model=char_lstm": "dataset=speech",
    "clock=trace": "clock.path=/nowhere",
}
OF_EXTRAS = ("model=lora", "model=huggingface")  # whose packages may be missing: built in their own tests


def test_every_group_is_there() -> None:
    groups = {group for group, _ in OPTIONS}
    assert groups >= {"client", "dataset", "mask", "model", "partitioner", "runtime", "server_optimizer"}
    assert groups >= {"step_size", "strategy", "weighting"}


@pytest.mark.exhaustive
@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_an_option_composes_and_instantiates(group: str, option: str) -> None:
    choice = f"{group}={option}"
    cfg = config.load(f"{choice} {NEEDS.get(choice, '')}".strip())
    OmegaConf.to_container(cfg, resolve=True)
    of_client = {"corrections": cfg.client.corrections, "private": cfg.client, "personal": cfg.client}
    of_client |= {"schedule": cfg.client.schedule, "client_optimizer": cfg.client.optimizer}
    node = of_client.get(group) or cfg.get(group)
    if group == "dataset":  # reads files: tested with its data
        assert callable(get_method(node.load._target_))
    elif choice in (
        "corrections=none",
        "logger=none",
        "clock=none",
    ):  # as for private and personal, it adds nothing
        assert cfg == config.load("")
    elif choice in OF_EXTRAS:
        assert callable(get_object(node._target_))
    elif group == "model":
        assert any(_gives_logits(choice, shape) for shape in SHAPES)
    else:
        assert config.build(node) is not None


def _gives_logits(choice: str, shape: str) -> bool:
    cfg = config.load(f"{choice} {NEEDS.get(choice, '')} dataset.shape={shape}")
    try:
        model = config.build(cfg.model).eval()
        tokens = any(isinstance(module, nn.Embedding) for module in model.modules())
        dtype = torch.int64 if tokens else next(model.parameters()).dtype
        return len(model(torch.zeros(2, *cfg.dataset.shape, dtype=dtype))) == 2
    except (UserError, RuntimeError, ValueError):  # it wants inputs of another shape
        return False


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_composes_and_instantiates(name: str) -> None:
    experiment = Experiment(f"experiment={name}")
    OmegaConf.to_container(experiment.cfg, resolve=True)
    assert isinstance(experiment.training, LocalTraining)
    experiment.strategy()
    experiment.model()
    config.build(experiment.cfg.partitioner)
    config.build(experiment.cfg.runtime)


def test_the_defaults_are_what_config_yaml_says() -> None:
    strategy = Experiment("").strategy()
    assert isinstance(strategy, PseudoGradientStrategy)
    assert repr(strategy) == (
        "FedAvg(nodes_per_round=None, fraction_train=None, num_nodes=10, min_replies=1, "
        "max_failed_rounds=3, federated_evaluation=True, fraction_evaluate=1.0, "
        "train_metrics_aggr_fn=None, evaluate_metrics_aggr_fn=None, query_partitions=True, "
        "node_timeout=120.0, max_norm=None, "
        "max_share=None, readmit=[], measures_norms=False, members=None, evaluators=None, "
        "group='', seed=0, dropout=0.0, compression=NoCompression(), weighting=ByExamples(), "
        "aggregation=Mean(), server_optimizer=Identity(), mask=NoMask(), step_size=Constant(eta=1.0), "
        "privacy=NoPrivacy(), average_last=1, "
        "buffer_names=('running_mean', 'running_var', 'num_batches_tracked'))"
    )


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (
            "strategy=fedexp",
            "Uniform() Identity() NoMask() Extrapolated(epsilon=0.001, epsilon_decay=1.0, clamp=True)",
        ),
        ("strategy=scaffold step_size.eta=2", "Uniform() Identity() NoMask() Constant(eta=2)"),
        ("strategy=fedavgm weighting=uniform", "Uniform() Momentum(beta=0.9) NoMask() Constant(eta=1.0)"),
        (
            "strategy=fedgma mask.tau=0.2",
            "ByExamples() Identity() AgreementMask(tau=0.2) Constant(eta=1.0)",
        ),
        (
            "strategy=fedprox step_size=extrapolated step_size.epsilon=0.5",
            "ByExamples() Identity() NoMask() Extrapolated(epsilon=0.5, epsilon_decay=1.0, clamp=True)",
        ),
    ],
)
def test_a_word_on_the_command_line_changes_a_part(overrides: str, parts: str) -> None:
    strategy = Experiment(overrides).strategy()
    assert isinstance(strategy, PseudoGradientStrategy)
    actual = (strategy.weighting, strategy.server_optimizer, strategy.mask, strategy.step_size)
    assert " ".join(map(repr, actual)) == parts


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("added", "key", "value"),
    [
        ("++nodes_per_round=null", "nodes_per_round", None),  # there already
        ("+client.optimizer.maximize=true", "client.optimizer.maximize", True),  # an argument
        ("+logger.mine={_target_:a.B}", "logger.mine", {"_target_": "a.B"}),  # a part of one's own
        ("+mask@strategy.inner=agreement strategy.inner.tau=0.3", "strategy.inner.tau", 0.3),
        ("+hydra.job.env_set.X=1", "seed", 0),  # Hydra's own
        ("dataset=hub ++dataset.name=x", "dataset.name", "x"),  # not there in the default configuration
    ],
)
def test_what_something_reads_can_be_added(added: str, key: str, value: object) -> None:
    assert OmegaConf.select(config.load(added), key) == value


def test_node_data_is_split_without_loss_and_keeps_its_labels() -> None:
    experiment = Experiment("node_test_fraction=0.2 partitioner.alpha=0.5")
    labels = experiment.dataset.train_targets.numpy()
    seen = []
    for train, test in experiment.partitions:
        seen += [*train, *test]
        own = torch.bincount(torch.from_numpy(labels[[*train, *test]]), minlength=10)
        tested = torch.bincount(torch.from_numpy(labels[test]), minlength=10)
        assert ((tested - 0.2 * own).abs() <= 1).all()
    assert sorted(seen) == list(range(len(labels)))


@pytest.mark.parametrize("partitioner", ["iid", "dirichlet"])
def test_partitions_depend_on_the_seed_alone(partitioner: str) -> None:
    def rows(overrides: str) -> list[list[int]]:
        partitions = Experiment(f"partitioner={partitioner} {overrides}").partitions
        return [part.tolist() for both in partitions for part in both]

    first = rows("seed=3 node_test_fraction=0.1")
    assert first == rows("seed=3 node_test_fraction=0.1 model=softmax rounds=2 strategy=fedexp")
    assert first != rows("seed=4 node_test_fraction=0.1")
    assert sorted(sum(first, [])) == list(range(1437))  # noqa: RUF017


def test_the_same_seed_gives_the_same_initial_model() -> None:
    def bits(seed: int) -> list[bytes]:
        torch.rand(3)  # someone else draws
        return [array.data for array in Experiment(f"seed={seed}").initial_arrays().values()]

    assert bits(0) == bits(0)
    assert bits(0) != bits(1)


def test_digits_are_split_by_label_whatever_the_seed() -> None:
    first, second = Experiment("seed=0").dataset, Experiment("seed=1").dataset
    assert torch.equal(first.test_inputs, second.test_inputs)
    assert (len(first.train_inputs), len(first.test_inputs)) == (1437, 360)
    share = torch.bincount(first.test_targets) / (
        torch.bincount(first.train_targets) + torch.bincount(first.test_targets)
    )
    assert ((share - 0.2).abs() < 0.01).all()


@pytest.mark.slow
def test_inputs_are_normalised() -> None:
    experiment = Experiment("node_test_fraction=0")
    inputs, _ = experiment.test_examples.batch(slice(None), torch.device("cpu"))
    assert inputs.shape == (360, 1, 8, 8)
    assert inputs.dtype == torch.float32
    assert abs(float(inputs.mean())) < 0.02
    assert abs(float(inputs.std()) - 1) < 0.02


def test_mnist_is_read_from_disk(shared_data: object) -> None:
    experiment = Experiment(
        f"dataset=mnist data_root={shared_data} dataset.load.images.download=false model=lenet"
    )
    inputs, targets = experiment.test_examples.batch(slice(None), torch.device("cpu"))
    assert (inputs.shape, targets[:5].tolist()) == ((10000, 1, 28, 28), [7, 2, 1, 0, 4])
    assert abs(float(inputs.mean())) < 0.01
    assert abs(float(inputs.std()) - 1) < 0.01
    assert len(experiment.dataset.train_inputs) == 60000
