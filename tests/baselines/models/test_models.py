import pytest
import torch
from torch import nn

from baselines import models
from baselines.errors import UserError
from baselines.experiment import config
from baselines.models.resnet import ResNet18
from clients import Classification, Examples
from clients.evaluation import evaluate

MNIST = ["dataset.shape=[1,28,28]", "dataset.num_classes=10"]
CIFAR = ["dataset.shape=[3,32,32]", "dataset.num_classes=10"]
COUNTS = [  # the papers' tables, recounted layer by layer
    ("softmax", MNIST, 7_850),
    ("mlp30", MNIST, 23_860),
    ("cnn4", MNIST, 21_840),
    ("cnn6", MNIST, 905_354),
    ("lenet", MNIST, 61_706),
    ("lenet", ["dataset.shape=[3,28,28]", "dataset.num_classes=10"], 62_006),
    ("lenet", CIFAR, 62_006),
    ("we_cnn", MNIST, 356_234),
    ("emnist_cnn", ["dataset.shape=[1,28,28]", "dataset.num_classes=62"], 1_206_590),
    ("resnet18", CIFAR, 11_173_962),
    ("resnet18_gn", CIFAR, 11_173_962),
]


def build(name: str, *overrides: str) -> nn.Module:
    model: nn.Module = config.build(config.load(" ".join((f"model={name}", *overrides))).model)
    return model


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "overrides", "count"), COUNTS)
def test_has_the_parameters_it_must_have(name: str, overrides: list[str], count: int) -> None:
    model = build(name, *overrides)
    assert sum(p.numel() for p in model.parameters()) == count


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "overrides"), [(name, overrides) for name, overrides, _ in COUNTS])
def test_gives_one_logit_per_class_and_example(name: str, overrides: list[str]) -> None:
    model = build(name, *overrides).eval()
    cfg = config.load(" ".join(overrides))
    logits = model(torch.zeros(2, *cfg.dataset.shape))
    assert logits.shape == (2, cfg.dataset.num_classes)
    assert logits.dtype == torch.float32


def test_lenet_pads_small_images_to_the_size_it_was_made_for() -> None:
    small, large = (
        build("lenet", *MNIST),
        build("lenet", "dataset.shape=[1,32,32]", "dataset.num_classes=10"),
    )
    large.load_state_dict(small.state_dict())
    images = torch.randn(2, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(small(images), large(nn.functional.pad(images, (2, 2, 2, 2))))


def test_lenet_refuses_another_image_size() -> None:
    with pytest.raises(UserError, match=r"^model=lenet takes images of 28x28 or 32x32, but .*\(1, 8, 8\)"):
        build("lenet", "dataset.shape=[1,8,8]", "dataset.num_classes=10")


@pytest.mark.parametrize("name", ["cnn4", "cnn6", "we_cnn", "emnist_cnn"])
def test_refuses_another_image_size_in_one_line(name: str) -> None:
    with pytest.raises(UserError, match=rf"^model={name} takes images of 28x28.*choose.*$"):
        build(name, *CIFAR)


@pytest.mark.parametrize("name", ["lenet", "resnet18"])
def test_refuses_what_is_no_image(name: str) -> None:
    with pytest.raises(UserError, match="takes images"):
        build(name, "dataset.shape=[1000]")


def test_resnet_has_the_norm_it_is_asked_for() -> None:
    batch = [type(m) for m in build("resnet18", *CIFAR).modules()]
    assert batch.count(nn.BatchNorm2d) == 20
    assert nn.GroupNorm not in batch
    group = [
        m for m in build("resnet18_gn", *CIFAR, "model.groups=4").modules() if isinstance(m, nn.GroupNorm)
    ]
    assert len(group) == 20
    assert {m.num_groups for m in group} == {4}


def test_resnet_keeps_the_resolution_in_its_stem() -> None:
    model = ResNet18([3, 32, 32], 10, None)
    seen = {}
    model.layer1.register_forward_hook(lambda _, inputs, __: seen.update(shape=inputs[0].shape))
    model.eval()(torch.zeros(1, 3, 32, 32))
    assert seen["shape"] == (1, 64, 32, 32)


@pytest.mark.parametrize("groups", [0, 3, 128])
def test_resnet_refuses_groups_that_do_not_divide_its_channels(groups: int) -> None:
    with pytest.raises(UserError, match=f"model.groups={groups}"):
        build("resnet18_gn", *CIFAR, f"model.groups={groups}")


@pytest.mark.parametrize("name", ["mlp30", "cnn4", "cnn6"])
def test_he_initialisation(name: str) -> None:
    torch.manual_seed(0)
    model = build(name, *MNIST)
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(layers) == {"mlp30": 2, "cnn4": 4, "cnn6": 6}[name]
    for layer in layers:
        assert layer.bias is not None
        assert not layer.bias.any()
        fan_in = layer.weight[0].numel()
        standardised = layer.weight.std() / (2 / fan_in) ** 0.5
        assert abs(standardised - 1) < 5 / layer.weight.numel() ** 0.5


def test_mlp_without_he_initialisation_is_torch_s_own() -> None:
    torch.manual_seed(0)
    model = models.Mlp([1, 8, 8], 10, hidden=16, he_init=False)
    torch.manual_seed(0)
    assert torch.equal(model.hidden.weight, nn.Linear(64, 16).weight)


@pytest.mark.parametrize("name", ["cnn4", "emnist_cnn", "cnn6"])
def test_dropout_is_for_training_alone(name: str) -> None:
    torch.manual_seed(0)
    model = build(name, *MNIST)
    inputs = torch.randn(8, 1, 28, 28)
    with torch.no_grad():
        assert not torch.equal(model.train()(inputs), model(inputs))
        assert torch.equal(model.eval()(inputs), model(inputs))


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "overrides"), [(n, o) for n, o, _ in COUNTS if "resnet" not in n])
def test_trains_a_round_and_fits_what_it_saw(name: str, overrides: list[str]) -> None:
    cfg = config.load(" ".join([f"model={name}", "client=adam", "client.batch_size=16", *overrides]))
    torch.manual_seed(0)
    model: nn.Module = config.build(cfg.model)
    classes = cfg.dataset.num_classes
    targets = torch.arange(48) % min(classes, 10)
    prototypes = torch.randn(classes, *cfg.dataset.shape)
    inputs = prototypes[targets] + 0.1 * torch.randn(48, *cfg.dataset.shape)
    examples = Examples(inputs, targets, torch.arange(48))
    before = evaluate(model, examples, Classification())
    training = config.build(cfg.client)
    for server_round in range(1, 9):
        training(model, examples, Classification(), server_round=server_round, seed=server_round)
    after = evaluate(model, examples, Classification())
    assert after["loss"] < before["loss"]
    assert after["accuracy"] > 0.5


def test_cnn6_trains_on_a_last_batch_of_one_example() -> None:
    torch.manual_seed(0)
    model = build("cnn6", *MNIST)
    examples = Examples(torch.randn(5, 1, 28, 28), torch.arange(5), torch.arange(5))
    training = config.build(config.load("client.batch_size=4").client)
    metrics = training(model, examples, Classification(), server_round=1, seed=0)
    assert metrics["local-steps"] == 2
    assert all(torch.isfinite(p).all() for p in model.parameters())
