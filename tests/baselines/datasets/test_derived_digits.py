"""cmnist, rotmnist, mnist_relabelled and mnist_writers."""

import colorsys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from baselines.datasets import Dataset
from baselines.datasets.cmnist import ColourRotation
from baselines.datasets.rotmnist import turn
from baselines.errors import UserError
from baselines.experiment import experiment
from clients import Normalize

NO_SUMS = "dataset.load.images.sha256=null"
IDENTITY = Normalize((0.0,) * 3, (1.0,) * 3, scale=1.0)


def load(name: str, root: Path, *overrides: str) -> Dataset:
    dataset: Dataset = experiment.Experiment(
        " ".join([f"dataset={name}", f"data_root={root}", NO_SUMS, *overrides])
    ).dataset
    return dataset


def hues_of(inputs: torch.Tensor) -> np.ndarray:
    """Return each image's hue in degrees, from its brightest pixel."""
    flat = inputs.flatten(2).double()
    brightest = flat.sum(1).argmax(1)
    pixels = flat[torch.arange(len(flat)), :, brightest] / 255
    return np.array([colorsys.rgb_to_hsv(*rgb)[0] * 360 for rgb in pixels.tolist()])


def test_colour_goes_with_the_label_and_misleads_in_the_test_set(mnist_root: Path) -> None:
    data = load("cmnist", mnist_root, "dataset.load.strength=1")
    assert data.train_inputs.shape == (60, 3, 28, 28)
    np.testing.assert_allclose(hues_of(data.train_inputs), data.train_targets.numpy() * 36, atol=1)
    np.testing.assert_allclose(hues_of(data.test_inputs), (data.test_targets.numpy() + 5) % 10 * 36, atol=1)


def test_colour_keeps_the_digit(mnist_root: Path, digits28: dict[str, np.ndarray]) -> None:
    data = load("cmnist", mnist_root)
    np.testing.assert_array_equal(data.train_inputs.amax(1).numpy(), digits28["train_inputs"])


def test_how_strict_the_colours_are_is_a_parameter(mnist_root: Path) -> None:
    none = load("cmnist", mnist_root, "dataset.load.strength=0", "dataset.load.test_shift=0")
    own = none.train_targets.numpy() * 36
    assert (np.abs(hues_of(none.train_inputs) - own) > 20).all()  # never its own
    assert len(set(np.rint(hues_of(none.train_inputs)).tolist())) > 7
    np.testing.assert_allclose(hues_of(none.test_inputs), none.test_targets.numpy() * 36, atol=1)
    half = load("cmnist", mnist_root, "dataset.load.strength=0.5")
    kept = (np.abs(hues_of(half.train_inputs) - own) < 20).mean()
    assert 0.25 < kept < 0.75


def test_each_node_sees_its_own_colours(mnist_root: Path) -> None:
    overrides = f"dataset=cmnist data_root={mnist_root} {NO_SUMS} num_nodes=4 partitioner=iid model=lenet"
    setup = experiment.Experiment(overrides)
    angles = [setup.node(k).train.transform.angle for k in range(4)]  # type: ignore[union-attr]
    assert len(set(angles)) == 4
    assert max(map(abs, angles)) <= 10
    assert setup.node(2).test.transform == setup.node(2).train.transform
    assert setup.test_examples.transform == setup.dataset.transform
    again = experiment.Experiment(overrides + " seed=5")
    assert [again.node(k).train.transform.angle for k in range(4)] == angles  # type: ignore[union-attr]
    same = experiment.Experiment(overrides + " dataset.load.node_turn=0")
    assert same.node(1).train.transform == same.dataset.transform
    inputs, _ = setup.node(0).train.batch(slice(0, 8), torch.device("cpu"))
    assert inputs.shape == (8, 3, 28, 28)
    assert setup.model()(inputs).shape == (8, 10)


def test_turning_moves_hues_and_leaves_grey() -> None:
    red = torch.zeros(1, 3, 2, 2, dtype=torch.uint8)
    red[:, 0] = 200
    turned = ColourRotation(10.0, IDENTITY)(red)
    assert 5 < hues_of(turned)[0] < 12  # towards green
    assert 348 < hues_of(ColourRotation(-10.0, IDENTITY)(red))[0] < 355
    grey = torch.full((1, 3, 2, 2), 90, dtype=torch.uint8)
    torch.testing.assert_close(ColourRotation(37.0, IDENTITY)(grey), grey.float(), atol=1e-3, rtol=0)
    torch.testing.assert_close(ColourRotation(0.0, IDENTITY)(red), red.float())
    third = ColourRotation(120.0, IDENTITY)(red)
    torch.testing.assert_close(third, red.float().roll(1, 1), atol=1e-3, rtol=0)


def test_each_node_draws_a_colour_for_each_digit(mnist_root: Path, digits28: dict[str, np.ndarray]) -> None:
    raw = "dataset.load.mean=[0,0,0] dataset.load.std=[1,1,1]"
    overrides = f"dataset=cmnist_maps data_root={mnist_root} {NO_SUMS} {raw} num_nodes=3 partitioner=iid"
    setup = experiment.Experiment(overrides)
    held = {k: setup.node(k).train for k in range(3)} | {"test": setup.test_examples}
    colours = {}
    for who, examples in held.items():
        inputs, labels = examples.batch(slice(None), torch.device("cpu"))
        assert inputs.shape[1:] == (3, 28, 28)
        part = "test" if who == "test" else "train"
        grey = torch.from_numpy(digits28[f"{part}_inputs"])[examples.index] / 255
        by_image = inputs.sum((2, 3)) / grey.sum((1, 2), keepdim=True)[..., 0]
        torch.testing.assert_close(inputs, grey[:, None] * by_image[:, :, None, None])  # of one colour
        for label in labels.unique().tolist():
            mine = by_image[labels == label]
            torch.testing.assert_close(mine, mine[:1].expand_as(mine))  # all alike
            colours[who, label] = tuple(mine[0].tolist())
    assert len({tuple(np.round(colour, 3)) for colour in colours.values()}) == len(colours)
    assert 0 <= min(map(min, colours.values())) < 0.1
    assert 0.9 < max(map(max, colours.values())) <= 1.0001
    again = experiment.Experiment(overrides + " seed=5")
    assert again.node(1).train.transform == setup.node(1).train.transform


def test_each_node_sees_all_digits_turned_by_its_own_angle(
    mnist_root: Path, digits28: dict[str, np.ndarray]
) -> None:
    raw = "dataset.load.mean=[0] dataset.load.std=[1] dataset.load.padding=8"
    data = f"dataset=rotmnist_nodes dataset.load.angles=[90,-90] data_root={mnist_root} {NO_SUMS} {raw}"
    setup = experiment.Experiment(f"{data} num_nodes=3 partitioner=iid")
    for examples, turns in ((setup.node(0).train, 1), (setup.node(1).train, -1), (setup.node(2).train, 1)):
        inputs, _ = examples.batch(slice(None), torch.device("cpu"))
        upright = torch.from_numpy(digits28["train_inputs"])[examples.index, None]
        torch.testing.assert_close(inputs, upright.rot90(turns, (2, 3)) / 255)
    inputs, _ = setup.test_examples.batch(slice(None), torch.device("cpu"))
    torch.testing.assert_close(inputs, torch.from_numpy(digits28["test_inputs"])[:, None] / 255)
    with pytest.raises(UserError, match="angles is empty"):
        load("rotmnist_nodes", mnist_root, "dataset.load.angles=[]")


def test_each_group_of_nodes_has_its_own_labels(mnist_root: Path, digits28: dict[str, np.ndarray]) -> None:
    data = f"dataset=mnist_relabelled data_root={mnist_root} {NO_SUMS} dataset.load.differing=4 num_nodes=6"
    setup = experiment.Experiment(data)
    held = [setup.node(k).train.index.numpy() for k in range(6)]
    assert sorted(np.concatenate(held)) == list(range(60))
    meanings = [[0, 1, 2, 3], [1, 2, 3, 0], [2, 3, 0, 1]]
    for node, rows in enumerate(held):
        _, labels = setup.node(node).train.batch(slice(None), torch.device("cpu"))
        own = np.array([*meanings[node // 2], 4, 5, 6, 7, 8, 9])
        np.testing.assert_array_equal(labels, own[digits28["train_targets"][rows]])
    _, labels = setup.test_examples.batch(slice(None), torch.device("cpu"))
    np.testing.assert_array_equal(labels, digits28["test_targets"])
    none = load("mnist_relabelled", mnist_root, "dataset.load.differing=0")
    np.testing.assert_array_equal(none.train_targets, digits28["train_targets"])
    with pytest.raises(UserError, match=r"dataset.load.groups=11 .*num_nodes=10"):
        load("mnist_relabelled", mnist_root, "dataset.load.groups=11")
    with pytest.raises(UserError, match=r"dataset.load.differing=-1"):
        load("mnist_relabelled", mnist_root, "dataset.load.differing=-1")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("dataset.load.strength=1.5", "dataset.load.strength=1.5 .*fraction"),
        ("dataset.load.node_turn=-1", "dataset.load.node_turn=-1"),
        ("dataset.load.hues=[0,10]", "2 hues, but there are labels up to 9"),
        ("dataset.load.hues=[]", "hues is empty"),
    ],
)
def test_colour_mistakes_get_one_line(override: str, message: str, mnist_root: Path) -> None:
    with pytest.raises(UserError, match=message):
        load("cmnist", mnist_root, override)


def test_training_digits_are_turned_and_test_digits_upright(
    mnist_root: Path, digits28: dict[str, np.ndarray]
) -> None:
    data = load("rotmnist", mnist_root, "dataset.load.angles=[0,90,180,-90,0,0,0,0,0,0]")
    upright = digits28["train_inputs"]
    turned = data.train_inputs.numpy()[:, 0]
    np.testing.assert_array_equal(turned[0], upright[0])
    np.testing.assert_array_equal(turned[1], np.rot90(upright[1]))  # counter-clockwise
    np.testing.assert_array_equal(turned[2], np.rot90(upright[2], 2))
    np.testing.assert_array_equal(turned[3], np.rot90(upright[3], -1))
    np.testing.assert_array_equal(data.test_inputs.numpy()[:, 0], digits28["test_inputs"])


def test_rotation_angles_are_the_thesis_s() -> None:
    from baselines.experiment import config

    angles = config.load("dataset=rotmnist").dataset.load.angles
    assert list(angles) == [10, -10, 20, -20, 30, -30, 40, -40, 50, -50]


def test_a_turned_line_has_the_angle() -> None:
    image = torch.zeros(1, 1, 28, 28, dtype=torch.uint8)
    image[..., 13:15, 4:24] = 255  # a horizontal bar
    y, x = turn(image, 30, 8)[0, 0].float().nonzero(as_tuple=True)
    slope = np.polyfit(x.numpy(), -y.numpy(), 1)[0]
    assert abs(np.degrees(np.arctan(slope)) - 30) < 1.5


def test_too_few_angles_are_refused(mnist_root: Path) -> None:
    with pytest.raises(UserError, match="2 angles, but there are labels up to 9"):
        load("rotmnist", mnist_root, "dataset.load.angles=[0,1]")


def write_ids(root: Path, writers: np.ndarray, labels: np.ndarray) -> Path:
    path = root / "MNIST-writers" / "mnist_writers.npz"
    path.parent.mkdir(exist_ok=True)
    np.savez(path, train_writer=writers.astype(np.int16), train_label=labels)
    return path


def test_writers_are_numbered_in_order(mnist_root: Path, digits28: dict[str, np.ndarray]) -> None:
    writers = np.repeat([900, 17, 333], 20)
    write_ids(mnist_root, writers, digits28["train_targets"])
    data = load("mnist_writers", mnist_root)
    np.testing.assert_array_equal(data.owners, np.repeat([2, 0, 1], 20))  # type: ignore[arg-type]


def test_writers_of_qmnist_files(
    mnist_root: Path,
    digits28: dict[str, np.ndarray],
    write_idx: Callable[[Path, np.ndarray], None],
) -> None:
    labels = np.zeros((60, 8), dtype=np.int32)
    labels[:, 0] = digits28["train_targets"]
    labels[:, 2] = np.repeat([5, 3], 30)
    raw = mnist_root / "QMNIST" / "raw"
    write_idx(raw / "qmnist-train-images-idx3-ubyte", digits28["train_inputs"])
    write_idx(raw / "qmnist-train-labels-idx2-int", labels)
    data = load("mnist_writers", mnist_root)
    np.testing.assert_array_equal(data.owners, np.repeat([1, 0], 30))  # type: ignore[arg-type]


def test_writers_of_other_images_are_refused(mnist_root: Path, digits28: dict[str, np.ndarray]) -> None:
    write_ids(mnist_root, np.arange(60), digits28["train_targets"][::-1])
    with pytest.raises(UserError, match="not those of MNIST"):
        load("mnist_writers", mnist_root)


def test_damaged_writers_are_named(mnist_root: Path, digits28: dict[str, np.ndarray]) -> None:
    path = write_ids(mnist_root, np.arange(60), digits28["train_targets"])
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match=f"{path} is damaged"):
        load("mnist_writers", mnist_root)


def test_missing_writers_are_named(mnist_root: Path) -> None:
    with pytest.raises(UserError, match="writers of MNIST's digits are not in"):
        load("mnist_writers", mnist_root, "dataset.load.images.download=false")


def test_the_real_writers(shared_data: Path) -> None:
    if not (shared_data / "MNIST-writers").is_dir():
        pytest.skip(f"no MNIST-writers in {shared_data}")
    setup = experiment.Experiment(
        f"dataset=mnist_writers data_root={shared_data} num_nodes=539 model=lenet"
    )
    sizes = np.array([len(train) for train, _ in setup.partitions])
    assert len(sizes) == 539
    assert (sizes.min(), sizes.max(), np.median(sizes)) == (19, 131, 116)


@pytest.mark.parametrize("name", ["cmnist_maps", "rotmnist_nodes", "cmnist", "rotmnist"])
def test_what_the_server_validates_on_is_no_secret_of_the_test_set(name: str, mnist_root: Path) -> None:
    """FedMeta trains on it, and early stopping goes by it."""
    setup = experiment.Experiment(
        f"dataset={name} data_root={mnist_root} {NO_SUMS} num_nodes=3 partitioner=iid validation_size=6"
    )
    assert setup.validation_examples.transform == setup.node(0).train.transform
    seen_differently = setup.validation_examples.transform != setup.test_examples.transform
    assert seen_differently == (name != "rotmnist")  # whose angles are in the images
