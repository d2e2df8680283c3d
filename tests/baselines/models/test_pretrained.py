"""LoRA's adapters and models of transformers: where they start, what is trained, and what is refused."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from baselines.errors import UserError
from baselines.experiment.experiment import Experiment
from baselines.models import Transformer
from baselines.models.pretrained import load_weights
from helpers.agreement.ways import full
from helpers.runs import App, metrics_in, played

NO_PEFT = "peft is not installed: pip install -e '.[lora]'"
NO_TRANSFORMERS = "transformers is not installed: pip install -e '.[lora]'"
TINY = "model.base.width=8 model.base.heads=2"
TEXTS = "dataset=tokens client_optimizer=adam client.optimizer.lr=0.05"


def base(num_classes: int = 5) -> Transformer:
    torch.manual_seed(3)
    return Transformer(11, [6], num_classes, width=8, heads=2)


def lora(*overrides: str) -> nn.Module:
    return Experiment(full(f"dataset=tokens model=lora {TINY} {' '.join(overrides)}")).model()


def weights(folder: Path, model: nn.Module) -> str:
    save_file(model.state_dict(), folder / "base.safetensors")
    return f"{folder}/base.safetensors"


def test_weights_of_the_same_model_are_loaded_and_a_head_of_another_shape_is_not(tmp_path: Path) -> None:
    model, path = base(), weights(tmp_path, base(2))
    head = model.head.weight.clone()
    nn.init.zeros_(model.encoder.tokens.weight)
    load_weights(model, path, ["head"])
    assert torch.equal(model.encoder.tokens.weight, base(2).encoder.tokens.weight)
    assert torch.equal(model.head.weight, head)
    with pytest.raises(UserError, match=r"has no head.weight of shape \[5, 8\] \(2 of the model's 30 are"):
        load_weights(model, path)
    with pytest.raises(UserError, match=r"^model.weights=none.safetensors cannot be read"):
        load_weights(model, "none.safetensors")


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("peft", "transformers"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=r"^model=lora needs the package peft: pip install -e '.\[lora\]'$"):
        lora()
    with pytest.raises(UserError, match=r"^model=huggingface needs the package transformers"):
        Experiment(full("dataset=tokens model=huggingface model.name=x")).model()


def test_adapters_start_as_their_base_and_are_trained_alone(tmp_path: Path) -> None:
    pytest.importorskip("peft", reason=NO_PEFT)
    model, texts = (
        lora(f"model.weights={weights(tmp_path, base())}", "model.r=2"),
        torch.randint(11, (4, 6)),
    )
    torch.testing.assert_close(model(texts), base()(texts))
    trained = {name: p.shape for name, p in model.named_parameters() if p.requires_grad}
    layers = 2 * 4  # of two layers the attention's two and the other two
    assert sum("lora_" in name for name in trained) == 2 * layers
    assert {name.split(".")[2] for name in trained if "lora_" not in name} == {"head"}
    assert sum(shape.numel() for shape in trained.values()) == 2 * 2 * (8 + 24 + 8 + 8 + 2 * (8 + 32)) + 45
    assert sum(not p.requires_grad for p in model.parameters()) == 28


def test_layers_can_be_named(tmp_path: Path) -> None:
    pytest.importorskip("peft", reason=NO_PEFT)
    model = lora("model.target_modules=[inputs]", "model.modules_to_save=[head,norm1]")
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    kinds = {"lora_A", "lora_B", "head", "norm1"}
    assert all(kinds & {*name.split(".")} for name in trained)
    assert len(trained) == 2 * 2 + 2 + 2 * 2
    with pytest.raises(
        UserError, match=r"^model=lora cannot adapt Transformer .*set model.target_modules to"
    ):
        lora("model.target_modules=[none]")
    with pytest.raises(
        UserError, match=r"^model.modules_to_save: Transformer has no none: expected names of"
    ):
        lora("model.modules_to_save=[none]")
    with pytest.raises(UserError, match=r"^model.r=0 is out of range: expected a whole number above 0"):
        lora("model.r=0")


def test_the_data_say_what_the_base_is_built_for() -> None:
    pytest.importorskip("peft", reason=NO_PEFT)
    experiment = Experiment("model=lora model@model.base=mlp dataset.shape=null")
    model = experiment.model()
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


def bytes_of(folder: Path, direction: str) -> list[float]:
    rows = metrics_in(folder)
    rows = rows[(rows.metric == f"bytes_{direction}") & (rows.model == "global")]
    return [float(value) for value in rows.sort_values("round").value]


@pytest.mark.slow
def test_a_round_costs_the_adapters_and_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    pytest.importorskip("peft", reason=NO_PEFT)
    setting = full(
        f"{TEXTS} model=lora model.base.width=64 model.base.layers=4 model.r=1 rounds=3 count_bytes=true "
        "save=last checkpoint_every=1 resume=true"
    )
    trained = sum(p.numel() for p in Experiment(setting).model().parameters() if p.requires_grad)
    whole = sum(p.numel() for p in Experiment(setting).model().parameters())
    played(setting, tmp_path / "whole")
    down, up = (bytes_of(tmp_path / "whole", direction) for direction in ("down", "up"))
    names = 3 * 34 * 200  # what each of the adapters' arrays costs besides its values
    assert all(size < 3 * 4 * trained + names for size in (*down[1:], *up))
    assert down[0] > 3 * 4 * whole > 10 * up[0]

    def interrupted_in_round_3(app: App) -> App:
        def interrupted(message: Any, context: Any) -> Any:
            config = message.content.config_records.get("config", {}) if message.has_content() else {}
            if message.metadata.message_type == "train" and config["server-round"] == 3:
                raise KeyboardInterrupt
            return app(message, context)

        return interrupted

    with pytest.raises(KeyboardInterrupt):
        played(setting, tmp_path / "one", interrupted_in_round_3)
    played(setting, tmp_path / "one")
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "whole"))
    start = Experiment(setting).model().state_dict()
    assert all(torch.equal(one[name], other[name]) for name in other)
    moved = {name for name in start if not torch.equal(start[name], one[name])}
    assert {part for name in moved for part in ("lora_A", "lora_B", "head") if part in name} == {
        "lora_A",
        "lora_B",
        "head",
    }
    assert len(moved) == 2 * 4 * 4 + 2


# Models of transformers, made here.


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    transformers = pytest.importorskip("transformers", reason=NO_TRANSFORMERS)
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=11, max_position_embeddings=6, **sizes)
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    return str(folder)


def test_a_saved_model_has_its_own_parameters_and_a_drawn_head(bert: str) -> None:
    setting = full(f"dataset=tokens model=huggingface model.name={bert} model.tokenizer=own")
    state, saved = Experiment(setting).model().state_dict(), load_file(f"{bert}/model.safetensors")
    heads = {"classifier.weight", "classifier.bias"}  # of two classes, and of five
    assert {name for name in saved if not torch.equal(state[f"model.{name}"], saved[name])} == heads | set()
    again = Experiment(setting).model().state_dict()
    assert all(torch.equal(state[name], again[name]) for name in state)


def test_padding_is_not_looked_at(bert: str) -> None:
    setting = full(f"dataset=tokens model=huggingface model.name={bert} model.tokenizer=own")
    model = Experiment(setting).model().eval()
    long = torch.tensor([[3, 1, 4, 0, 0]])
    torch.testing.assert_close(model(long), model(long[:, :3]))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("model.name=null", "^model=huggingface needs a model"),
        ("", r"knows the 11 tokens of its own tokenizer: set dataset.tokenizer=.*/tokenizer.json and"),
        ("model.tokenizer=own dataset.vocabulary=12", "^model.name=.* knows the 11 tokens"),
        ("model.name=/nowhere/at/all", "^model.name=/nowhere/at/all cannot be loaded"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(overrides: str, message: str, bert: str) -> None:
    with pytest.raises(UserError, match=message):
        Experiment(full(f"dataset=tokens model=huggingface model.name={bert} {overrides}")).model()


@pytest.mark.slow
@pytest.mark.parametrize("adapted", [False, True])
def test_a_round_of_a_saved_model(bert: str, adapted: bool, tmp_path: Path) -> None:
    name = f"model=lora model@model.base=huggingface model.base.name={bert} model.base.tokenizer=own"
    plain = f"model=huggingface model.name={bert} model.tokenizer=own"
    if adapted:
        pytest.importorskip("peft", reason=NO_PEFT)
    rows = played(full(f"{TEXTS} {name if adapted else plain} rounds=1"), tmp_path)
    losses = rows[(rows.split == "test") & (rows.metric == "loss")].value.tolist()
    assert losses[1] < losses[0]
