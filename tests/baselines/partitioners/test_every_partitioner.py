"""What holds for every partitioner in conf/partitioner."""

import numpy as np
import pytest

from baselines.errors import UserError
from baselines.experiment import config, experiment
from baselines.experiment.overrides import CONF
from baselines.partitioners import Dirichlet, Iid, Partitioner, split_node
from strategies.shared.seeding import Purpose, generator

OPTIONS = sorted(path.stem for path in (CONF / "partitioner").glob("*.yaml"))
ONCE = [name for name in OPTIONS if name not in ("replicated", "centralized")]
DATA = np.random.default_rng(7)
LABELS = DATA.choice(10, 3_011, p=np.linspace(0.08, 0.12, 10))
OWNERS = np.arange(len(LABELS)) % 40


def build(name: str, *overrides: str) -> Partitioner:
    cfg = config.load(" ".join([f"partitioner={name}", *overrides]))
    partitioner: Partitioner = config.build(cfg.partitioner)
    return partitioner


def table(parts: list[np.ndarray], labels: np.ndarray = LABELS) -> np.ndarray:
    return np.stack([np.bincount(labels[rows], minlength=10) for rows in parts])


def num_nodes(name: str) -> int:
    return 1 if name == "centralized" else 40


def test_every_partition_of_the_papers_is_there() -> None:
    assert {
        "iid",
        "dirichlet",
        "dirichlet_equal",
        "pathological",
        "dominant_labels",
        "quantity_skew",
        "shifted_labels",
        "label_groups",
        "by_writer",
        "centralized",
        "replicated",
    } <= set(OPTIONS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", OPTIONS)
def test_gives_every_node_ascending_rows(name: str) -> None:
    parts = build(name)(LABELS, OWNERS, num_nodes(name), 0)
    assert len(parts) == num_nodes(name)
    for rows in parts:
        assert rows.dtype == np.int64
        assert len(rows) > 0
        assert (np.diff(rows) > 0).all()


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [*ONCE, "centralized"])
def test_deals_every_row_exactly_once(name: str) -> None:
    parts = build(name)(LABELS, OWNERS, num_nodes(name), 0)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(LABELS)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [name for name in ONCE if name != "by_writer"])
def test_the_seed_decides_everything(name: str) -> None:
    def rows(seed: int) -> np.ndarray:
        return np.concatenate(build(name)(LABELS, OWNERS, 40, seed))

    np.testing.assert_array_equal(rows(3), rows(3))
    assert not np.array_equal(rows(3), rows(4))


@pytest.mark.parametrize("name", ["iid", "dirichlet_equal", "pathological", "shifted_labels"])
def test_sizes_are_equal_where_promised(name: str) -> None:
    sizes = [len(rows) for rows in build(name)(LABELS, OWNERS, 40, 0)]
    assert max(sizes) - min(sizes) <= (2 if name == "pathological" else 1)


def test_replicated_gives_everything_to_everyone() -> None:
    for rows in build("replicated")(LABELS, None, 3, 0):
        np.testing.assert_array_equal(rows, np.arange(len(LABELS)))


def test_iid_is_as_even_as_chance_and_recalls_the_thesis_table(golden_counts: np.ndarray) -> None:
    labels = np.repeat(np.arange(10), 6_000)
    counts = table(build("iid")(labels, None, 10, 0), labels)
    # Hypergeometric: 6,000 of 60,000 drawn, 6,000 of them of a label.
    deviation = np.sqrt(6_000 * 0.1 * 0.9 * 54_000 / 59_999)
    assert np.abs(counts - 600).max() < 4.5 * deviation
    assert counts.std() > deviation / 2
    assert np.abs(golden_counts - golden_counts.mean(0)).max() < 4.5 * deviation  # so does the table


def test_dirichlet_is_more_skewed_for_a_smaller_alpha() -> None:
    def skew(name: str, alpha: float) -> float:
        counts = table(build(name, f"partitioner.alpha={alpha}")(LABELS, None, 20, 0))
        return float((counts / counts.sum(1, keepdims=True)).max(1).mean())

    for name in ("dirichlet", "dirichlet_equal"):
        assert skew(name, 0.1) > 0.4 > 0.2 > skew(name, 100.0)


def test_dirichlet_equal_follows_each_node_s_prior_while_labels_last() -> None:
    labels = np.repeat(np.arange(4), 5_000)
    parts = build("dirichlet_equal", "partitioner.alpha=1.0")(labels, None, 2, 0)
    first, second = table(parts, labels)[:, :4]
    # Two nodes share four labels: what one has the other lacks, and each holds half.
    np.testing.assert_array_equal(first + second, 5_000)
    assert first.sum() == second.sum() == 10_000
    assert first.std() > 500


def test_dirichlet_equal_ends_when_priors_vanish() -> None:
    parts = build("dirichlet_equal", "partitioner.alpha=0.001")(LABELS, None, 40, 0)
    assert sorted(map(len, parts)) == sorted(len(p) for p in np.array_split(LABELS, 40))


def test_dirichlet_equal_draws_where_priors_are_all_but_nothing() -> None:
    """Of a sum of a few bits a share rounds up to the whole: once a label after the last."""
    labels = np.repeat(np.arange(10), 144)
    for alpha, num_nodes, seed in ((0.001, 5, 4), (0.005, 20, 2), (0.001, 100, 0)):
        parts = build("dirichlet_equal", f"partitioner.alpha={alpha}")(labels, None, num_nodes, seed)
        assert sorted(np.concatenate(parts)) == list(range(len(labels)))


def test_pathological_nodes_hold_few_labels() -> None:
    labels = np.repeat(np.arange(10), 300)
    parts = build("pathological")(labels, None, 50, 0)  # 100 shards of 30, ten per label
    assert {len(rows) for rows in parts} == {60}
    held = (table(parts, labels) > 0).sum(1)
    assert held.max() == 2
    assert held.min() >= 1


def test_quantity_skew_ignores_labels_and_spares_no_node() -> None:
    parts = build("quantity_skew", "partitioner.alpha=0.05")(LABELS, None, 40, 0)
    sizes = np.array([len(rows) for rows in parts])
    assert sizes.min() == 1
    assert sizes.max() > 500
    counts = table([parts[sizes.argmax()]])[0]
    share = np.bincount(LABELS) / len(LABELS)
    assert np.abs(counts / counts.sum() - share).max() < 4 * np.sqrt(0.1 * 0.9 / counts.sum())


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "override", "nodes", "message"),
    [
        ("dirichlet", "partitioner.alpha=0", 4, "partitioner.alpha=0 is out of range"),
        ("dirichlet_equal", "partitioner.alpha=-1", 4, "partitioner.alpha=-1 is out of range"),
        ("dirichlet", "partitioner.min_size=70", 40, "fewer than partitioner.min_size=70"),
        ("dirichlet", "partitioner.min_size=76", 40, "min_size=76 for each of num_nodes=40 .* the 3011"),
        ("pathological", "partitioner.shards_per_node=200", 40, "8000 shards of 3011 examples"),
        ("dominant_labels", "partitioner.share=1.2", 40, "partitioner.share=1.2.*fraction"),
        ("dominant_labels", "partitioner.share=0", 40, "partitioner.share=0 .*fraction"),
        ("dominant_labels", "partitioner.labels_per_node=11", 40, "more than the data set's 10 labels"),
        ("dominant_labels", "partitioner.share=0.9", 4, "labels without a node: raise num_nodes"),
        ("dominant_labels", "partitioner.share=0.9", 1_500, "examples of label . are too few"),
        ("dominant_labels", "partitioner.share=0.9", 1_506, "1506 nodes with 2 labels each need more than"),
        ("quantity_skew", "partitioner.alpha=nan", 4, "partitioner.alpha=nan"),
        (
            "shifted_labels",
            "partitioner.distribution=H",
            10,
            "distribution=H is unknown.*A to G",
        ),
        ("shifted_labels", "partitioner.distribution=B", 12, "num_nodes=12: expected a multiple of 10"),
        ("shifted_labels", "partitioner.distribution=pairs", 12, "num_nodes=12: expected a multiple of 5"),
        ("shifted_labels", "partitioner.distribution=B", 1000, "at least num_nodes=1000 examples of each"),
        ("label_groups", "partitioner.balanced=20", 9, "partitioner.balanced=20 .*fraction in"),
        ("label_groups", "partitioner.balanced=-0.1", 9, "partitioner.balanced=-0.1"),
        ("label_groups", "partitioner.groups=[[0,1],[2]]", 9, r"leaves out .* labels \[3, 4"),
        ("label_groups", "partitioner.groups=[[0,1],[1]]", 9, "no label twice"),
        ("label_groups", "partitioner.balanced=0", 2, "less than partitioner=label_groups' 3 groups"),
        ("label_groups", "partitioner.balanced=0", 6_000, "too few for its 2000 nodes"),
        ("centralized", "seed=0", 2, "set num_nodes=1"),
        ("by_writer", "seed=0", 39, "40 writers but num_nodes=39.*partitioner.merge=true"),
        ("by_writer", "partitioner.merge=true", 41, "40 writers but num_nodes=41: set num_nodes=40$"),
    ],
)
def test_a_mistake_gets_one_line(name: str, override: str, nodes: int, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        build(name, override)(LABELS, OWNERS, nodes, 0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["dirichlet", "dominant_labels"])
def test_what_cannot_be_is_refused_before_anything_is_drawn(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 60,000 nodes the draws would take minutes, or all of the memory."""
    partitioner = build(name)
    for place in ("flower", "dominant_labels"):
        monkeypatch.setattr(f"baselines.partitioners.{place}.generator", pytest.fail)
    with pytest.raises(UserError, match="60000"):
        partitioner(np.arange(60_000) % 10, None, 60_000, 0)


def test_by_writer_without_writers_is_refused() -> None:
    with pytest.raises(UserError, match="needs a data set whose examples have writers"):
        build("by_writer")(LABELS, None, 40, 0)


def test_by_writer_gives_node_k_what_writer_k_wrote() -> None:
    for writer, rows in enumerate(build("by_writer")(LABELS, OWNERS, 40, 5)):
        np.testing.assert_array_equal(rows, (writer == OWNERS).nonzero()[0])


def test_merged_writers_may_lack_one_and_single_ones_may_not() -> None:
    """As where all examples of a writer have been set aside."""
    kept = OWNERS != 3
    parts = build("by_writer", "partitioner.merge=true")(LABELS[kept], OWNERS[kept], 7, 0)
    assert sorted(np.concatenate(parts).tolist()) == list(range(kept.sum()))
    with pytest.raises(UserError, match="1 of 40 writers have no examples left for a node"):
        build("by_writer")(LABELS[kept], OWNERS[kept], 40, 0)


def test_merged_writers_are_never_divided() -> None:
    parts = build("by_writer", "partitioner.merge=true")(LABELS, OWNERS, 7, 0)
    held = [set(OWNERS[rows].tolist()) for rows in parts]
    assert sorted(len(writers) for writers in held) == [5, 5, 6, 6, 6, 6, 6]
    assert sum(len(writers) for writers in held) == 40 == len(set.union(*held))


def test_split_follows_the_node_s_own_distribution() -> None:
    rows = np.flatnonzero(LABELS < 3)
    train, test = split_node(rows, LABELS, 0.25, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), rows)
    counts = np.bincount(LABELS[rows])
    assert np.abs(np.bincount(LABELS[test]) - counts / 4).max() <= 1


@pytest.mark.parametrize("size", [1, 2, 3])
def test_split_leaves_something_to_train_on(size: int) -> None:
    for seed in range(50):
        train, test = split_node(np.arange(size), LABELS, 0.9, np.random.default_rng(seed))
        assert len(train) >= 1
        assert len(train) + len(test) == size


def test_iid_is_flowers_cut_of_a_shuffled_set() -> None:
    labels = np.arange(103) % 7
    from datasets import Dataset
    from flwr_datasets.partitioner import IidPartitioner

    order = generator(3, Purpose.PARTITION).permutation(103)
    theirs = IidPartitioner(10)
    theirs.dataset = Dataset.from_dict({"row": order})
    for node, rows in enumerate(Iid()(labels, None, 10, 3)):
        assert rows.tolist() == sorted(theirs.load_partition(node)["row"])


@pytest.mark.filterwarnings("ignore:The specified min_partition_size")
@pytest.mark.parametrize(("alpha", "min_size"), [(0.05, 1), (0.3, 8), (1.0, 3), (100.0, 20)])
def test_dirichlet_is_flowers_dirichlet(alpha: float, min_size: int) -> None:
    from datasets import Dataset
    from flwr_datasets.partitioner import DirichletPartitioner

    labels = np.random.default_rng(1).integers(2, 9, 503)
    for seed in range(3):
        drawn = int(generator(seed, Purpose.PARTITION).integers(2**31))
        theirs = DirichletPartitioner(8, "label", alpha, min_size, seed=drawn)
        theirs.dataset = Dataset.from_dict({"label": labels, "row": np.arange(503)})
        ours = Dirichlet(alpha, min_size)(labels, None, 8, seed)
        for node, rows in enumerate(ours):
            assert rows.tolist() == sorted(theirs.load_partition(node)["row"])


def test_without_node_test_data_a_node_holds_what_a_split_of_nothing_leaves() -> None:
    setup = experiment.load("partitioner=dirichlet num_nodes=7 node_test_fraction=0")
    labels = setup.dataset.train_targets.numpy()
    for partition_id, (train, test) in enumerate(setup.partitions):
        halves = split_node(np.flip(train), labels, 0.0, np.random.default_rng(partition_id))
        for mine, theirs in zip((train, test), halves, strict=True):
            np.testing.assert_array_equal(mine, theirs)
            assert mine.dtype == theirs.dtype
