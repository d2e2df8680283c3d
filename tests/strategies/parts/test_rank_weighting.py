"""Weights by rank: by layer, by model, and what other layers take."""

from dataclasses import replace

import pytest
import torch
from flwr.app import ArrayRecord
from torch import Tensor, nn

from baselines.models import LeNet
from strategies import EffectiveRank, StableRank, Updates
from strategies.parts.layout import Layout
from strategies.parts.weighting import RankWeighting
from strategies.shared.linalg import effective_rank, unfold

NODES = 3


class Net(nn.Module):
    """Parameters in the order: dense, convolution, bias, statistics, convolution, dense."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(4, 3, bias=False)
        self.conv1 = nn.Conv2d(4, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 12, 3, bias=False)
        self.after = nn.Linear(5, 2)


def learnt(weight: Tensor, rank: int, seed: int) -> Tensor:
    """Return a weight whose unfolding has so many strong directions above small noise."""
    generator = torch.Generator().manual_seed(seed)
    rows, columns = weight.shape[0], weight[0].numel()
    low = torch.randn(rows, rank, generator=generator) @ torch.randn(rank, columns, generator=generator)
    return (low + 0.01 * torch.randn(rows, columns, generator=generator)).view_as(weight)


def updates(ranks: list[int]) -> Updates:
    """Nodes whose two convolutions have the given ranks."""
    torch.manual_seed(0)
    start = ArrayRecord(Net().state_dict())
    layout = Layout.of(start)
    rows = []
    for k, rank in enumerate(ranks):
        net = Net()
        for conv in (net.conv1, net.conv2):
            conv.weight.data = learnt(conv.weight.data, rank, k)
        rows.append(layout.flatten_parameters(ArrayRecord(net.state_dict())))
    w = layout.flatten_parameters(start)
    buffers = torch.zeros(len(ranks), layout.num_buffers, dtype=torch.float64)
    counts = torch.ones(len(ranks), dtype=torch.float64)
    return Updates(w - torch.stack(rows), buffers, counts, tuple(range(len(ranks))), layout, w)


def column(stacked: Updates, name: str) -> int:
    return [layer.name for layer in stacked.layout.layers].index(name)


def test_convolutions_are_weighted_by_their_own_rank() -> None:
    stacked = updates([1, 3, 6])
    alpha, _ = EffectiveRank()(stacked, {})
    for name in ("conv1.weight", "conv2.weight"):
        layer = stacked.layout.layers[column(stacked, name)]
        ranks = []
        for delta in stacked.deltas:
            weight = (stacked.start - delta)[layer.columns].view(layer.shape)
            both = [effective_rank(unfold(weight, mode)) for mode in ("in", "out")]
            ranks.append(max(1e-3, sum(both) / 2))
        expected = torch.tensor(ranks, dtype=torch.float64) / sum(ranks)
        torch.testing.assert_close(alpha[:, column(stacked, name)], expected)
        assert len(set(expected.tolist())) == NODES


@pytest.mark.parametrize("weighting", [EffectiveRank(), StableRank(), EffectiveRank(variant="initial")])
def test_weights_of_each_layer_sum_to_one(weighting: RankWeighting) -> None:
    alpha, _ = weighting(updates([1, 2, 5]), {})
    torch.testing.assert_close(alpha.sum(0), torch.ones(alpha.shape[1], dtype=torch.float64))


def test_other_layers_take_the_last_convolutions_weights() -> None:
    stacked = updates([2, 3, 6])
    alpha, _ = EffectiveRank()(stacked, {})
    uniform = torch.full((NODES,), 1 / NODES, dtype=torch.float64)
    assert torch.equal(alpha[:, column(stacked, "before.weight")], uniform)
    first, second = (alpha[:, column(stacked, f"conv{i}.weight")] for i in (1, 2))
    for name in ("conv1.bias", "norm.weight", "norm.running_var", "norm.num_batches_tracked"):
        assert torch.equal(alpha[:, column(stacked, name)], first), name
    assert torch.equal(alpha[:, column(stacked, "after.bias")], second)
    assert not torch.equal(first, second)


def test_initial_variant_leaves_other_layers_uniform() -> None:
    stacked = updates([2, 3, 6])
    alpha, _ = EffectiveRank(variant="initial")(stacked, {})
    for name in ("before.weight", "conv1.bias", "norm.weight", "after.weight"):
        assert torch.equal(
            alpha[:, column(stacked, name)], torch.full((NODES,), 1 / NODES, dtype=torch.float64)
        )


def test_nodes_that_have_learnt_nothing_have_equal_weights() -> None:
    torch.manual_seed(0)
    record = ArrayRecord(Net().state_dict())  # as initialised: noise only
    layout = Layout.of(record)
    w = layout.flatten_parameters(record)
    buffers = torch.zeros(NODES, layout.num_buffers, dtype=torch.float64)
    still = Updates(torch.zeros(NODES, len(w)), buffers, torch.ones(NODES).double(), (0, 1, 2), layout, w)
    for weighting in (
        EffectiveRank(),
        EffectiveRank(variant="initial"),
        EffectiveRank(granularity="model"),
    ):
        alpha, _ = weighting(still, {})
        torch.testing.assert_close(alpha, torch.full_like(alpha, 1 / NODES))


def test_a_model_has_one_weight_for_each_node() -> None:
    stacked = updates([2, 3, 6])
    alpha, _ = EffectiveRank(granularity="model")(stacked, {})
    convolutions = [layer for layer in stacked.layout.layers if len(layer.shape) == 4]
    quality = []
    for delta in stacked.deltas:
        weights = [(stacked.start - delta)[layer.columns].view(layer.shape) for layer in convolutions]
        ranks = [effective_rank(unfold(weight, mode)) for weight in weights for mode in ("in", "out")]
        quality.append((sum(rank**2 for rank in ranks) / len(ranks)) ** 0.5)
    expected = torch.tensor(quality, dtype=torch.float64) / sum(quality)
    torch.testing.assert_close(alpha, expected)
    assert len(set(alpha.tolist())) == NODES


def test_the_unfolding_matters() -> None:
    stacked = updates([2, 3, 6])
    by_mode = {mode: EffectiveRank(unfolding=mode)(stacked, {})[0] for mode in ("in", "out", "mean")}
    assert not torch.allclose(by_mode["in"], by_mode["out"])
    assert not torch.allclose(by_mode["in"], by_mode["mean"])


def test_both_unfoldings_count_by_their_root_mean_square(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks 1 and 7 of one node, 5 and 5 of the other: means 4 and 5, root mean squares 5 and 5."""
    ranks = torch.tensor([[[1.0, 7.0]] * 2, [[5.0, 5.0]] * 2], dtype=torch.float64)
    monkeypatch.setattr(EffectiveRank, "_ranks", lambda self, updates: ranks)
    stacked = updates([2, 3])
    place = column(stacked, "conv1.weight")
    by_mode = {
        mode: EffectiveRank(unfolding=mode)(stacked, {})[0][:, place].tolist() for mode in ("mean", "rms")
    }
    assert by_mode == {"mean": pytest.approx([4 / 9, 5 / 9]), "rms": pytest.approx([0.5, 0.5])}


def test_a_model_without_convolutions_is_refused() -> None:
    layout = Layout.of(ArrayRecord(nn.Linear(3, 2).state_dict()))
    with pytest.raises(ValueError, match="EffectiveRank needs a model with a convolutional layer"):
        EffectiveRank().check(layout)
    EffectiveRank().check(Layout.of(ArrayRecord(LeNet([1, 28, 28], 10).state_dict())))


@pytest.mark.parametrize(
    "choice", [{"variant": "x"}, {"granularity": "x"}, {"unfolding": "x"}, {"floor": 0.0}]
)
def test_unknown_choices_are_refused(choice: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=f"weighting.{next(iter(choice))}="):
        EffectiveRank(**choice)  # type: ignore[arg-type]


def test_a_round_s_metrics_show_the_weights_of_each_convolution() -> None:
    stacked = replace(updates([2, 3, 6]), partition_ids=(1, 4, 7))
    alpha, state = EffectiveRank()(stacked, {})
    metrics = EffectiveRank().metrics(stacked, alpha, state)
    expected = {
        f"weight-{k}-{name}": float(alpha[row, column(stacked, f"{name}.weight")])
        for name in ("conv1", "conv2")
        for row, k in enumerate((1, 4, 7))
    }
    assert metrics == expected
    assert len(set(metrics.values())) == 6


def test_a_round_s_metrics_show_the_weights_of_whole_models() -> None:
    stacked = updates([2, 3, 6])
    alpha, state = EffectiveRank(granularity="model")(stacked, {})
    metrics = EffectiveRank(granularity="model").metrics(stacked, alpha, state)
    assert metrics == {f"weight-{k}": float(alpha[k]) for k in range(3)}


def kernels_first(weight: Tensor) -> Tensor:
    """Return a convolution's weight as JAX and Keras have it, [height, width, in, out]."""
    return weight.permute(2, 3, 1, 0).contiguous()


def nodes_of(ranks: list[int], *, hwio: bool) -> Updates:
    """Nodes with one convolution of 3 x 3 from 16 to 32 channels each, of the given ranks."""
    weights = [learnt(torch.zeros(32, 16, 3, 3), rank, k) for k, rank in enumerate(ranks)]
    weights = [kernels_first(weight) for weight in weights] if hwio else weights
    layout = Layout.of(ArrayRecord({"kernel": torch.zeros_like(weights[0])}))  # type: ignore[arg-type]
    deltas = -torch.stack([weight.flatten() for weight in weights])
    count = len(ranks)
    examples = torch.ones(count, dtype=torch.float64)
    buffers = torch.zeros(count, 0, dtype=torch.float64)
    return Updates(deltas, buffers, examples, tuple(range(count)), layout, torch.zeros_like(deltas[0]))


@pytest.mark.parametrize("kind", [EffectiveRank, StableRank])
def test_kernels_that_come_first_give_the_same_weights(kind: type[RankWeighting]) -> None:
    expected, _ = kind()(nodes_of([0, 4, 9], hwio=False), {})
    actual, _ = kind(layout="hwio")(nodes_of([0, 4, 9], hwio=True), {})
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=0)
    assert float(expected[0]) < 0.001  # it has learnt nothing
    wrong, _ = kind(layout="oihw")(nodes_of([0, 4, 9], hwio=True), {})
    assert float((wrong - expected).abs().max()) > 0.05


def shapes(*all_of_them: tuple[int, ...]) -> Layout:
    return Layout.of(ArrayRecord({str(k): torch.zeros(s) for k, s in enumerate(all_of_them)}))  # type: ignore[arg-type,misc]


def test_kernels_that_come_first_are_refused_unless_it_is_said() -> None:
    keras = shapes((3, 3, 1, 32), (32,), (3, 3, 32, 64), (64,), (1600, 10))
    with pytest.raises(ValueError, match=r"'0' of shape \(3, 3, 1, 32\) looks like a weight of JAX"):
        EffectiveRank().check(keras)
    EffectiveRank(layout="hwio").check(keras)
    EffectiveRank(layout="oihw").check(keras)
    with pytest.raises(ValueError, match=r"weighting.layout=nchw is out of range: expected one of oihw"):
        EffectiveRank(layout="nchw")


@pytest.mark.parametrize(
    "all_of_them",
    [
        [(3, 3, 3, 3)],  # from 3 channels to 3
        [(1, 1, 5, 5)],
        [(8, 8, 1, 1), (8, 8, 3, 3)],
        [(32, 1, 3, 3), (32, 32, 1, 5)],
        [(64, 3, 7, 7), (64, 64, 1, 1)],
    ],
    ids=str,
)
def test_pytorchs_weights_are_not_taken_for_others(all_of_them: list[tuple[int, ...]]) -> None:
    EffectiveRank().check(shapes(*all_of_them))
