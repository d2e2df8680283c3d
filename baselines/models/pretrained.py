"""Pretrained models: LoRA adapters on any model, and models of the package transformers.

Both packages are optional and imported only when needed.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from baselines.errors import UserError
from strategies.shared.checks import require, require_count

from .transformer import PADDING


def lora(
    base: Callable[..., nn.Module],
    input_shape: list[int] | None,
    num_classes: int | None,
    weights: str | None,
    target_modules: list[str] | None,
    modules_to_save: list[str] | None,
    r: int = 8,
    lora_alpha: float = 16.0,
    lora_dropout: float = 0.0,
) -> nn.Module:
    """Return a model whose linear layers have low-rank adapters, which are trained in their place.

    W becomes W + (lora_alpha / r) B A, with A drawn at random and B = 0: the model starts as ``base`` (Hu et
    al., *LoRA: Low-Rank Adaptation of Large Language Models*, ICLR 2022, section 4.1). The parameters of
    ``base`` are frozen and sent once; rounds exchange A, B and ``modules_to_save``. Strategies average A and
    B each by itself, which is not the average of their products.

    Parameters
    ----------
    base : a model's option, chosen with ``model@model.base=...``
    input_shape, num_classes : for ``base``, where it takes them
    weights : a file of its parameters, as ``save=last`` writes model.safetensors; None: as they are drawn
    target_modules : names, or their ends, of layers to adapt; None: all linear layers but ``modules_to_save``
    modules_to_save : names of layers that are trained as they are; None: the last with parameters. In
        ``weights`` they may be missing, or of another shape
    r : rank of the adapters
    lora_alpha : r times the factor before B A
    lora_dropout : share of an adapter's inputs that are left out in training

    Raises
    ------
    UserError : without the package peft, for weights of another model, or a model without layers to adapt
    """
    require_count("model.r", r)
    require(0 <= lora_dropout < 1, "model.lora_dropout", lora_dropout, "in [0, 1)")
    peft = _import("peft", "model=lora")
    model = _build(base, {"input_shape": input_shape, "num_classes": num_classes})
    saved = [_last_layer(model)] if modules_to_save is None else modules_to_save
    layers = dict(model.named_modules())
    if unknown := [one for one in saved if not any(_is_in(name, [one]) for name in layers)]:
        raise UserError(
            f"model.modules_to_save: {type(model).__name__} has no {unknown[0]}: expected names of "
            f"{[*layers][1:6]}"
        )
    if weights is not None:
        load_weights(model, weights, saved)
    saved_layers = [
        layer for name, layer in layers.items() if _is_in(name, saved)
    ]  # peft takes any name's end
    linear = [name for name, layer in layers.items() if isinstance(layer, nn.Linear)]
    targets = target_modules or [name for name in linear if not _is_in(name, saved)]
    if not targets:
        raise UserError(
            f"model=lora: {type(model).__name__} has no linear layer to adapt besides {', '.join(saved)}: set "
            "model.target_modules"
        )
    config = peft.LoraConfig(r=r, lora_alpha=lora_alpha, lora_dropout=lora_dropout, target_modules=targets)
    try:
        adapted: nn.Module = peft.get_peft_model(model, config)
    except ValueError as error:  # no such layer, or one without an adapter
        raise UserError(
            f"model=lora cannot adapt {type(model).__name__} ({error}): set model.target_modules to layers of "
            f"{linear[:5]}"
        ) from error
    for layer in saved_layers:
        layer.requires_grad_(True)
    return adapted


def _build(base: Callable[..., nn.Module], measured: dict[str, object]) -> nn.Module:
    """Build a model with shapes from the data set, unless its own settings state them."""
    stated = base.keywords if isinstance(base, partial) else {}
    taken = inspect.signature(base).parameters
    return base(**{k: v for k, v in measured.items() if k in taken and stated.get(k) is None})


def _last_layer(model: nn.Module) -> str:
    return [name for name, layer in model.named_modules() if [*layer.parameters(recurse=False)]][-1]


def _is_in(name: str, modules: Sequence[str]) -> bool:
    """Say whether a parameter or layer belongs to one of these modules, given by name or its end."""
    return any(f".{module}." in f".{name}." for module in modules)


def load_weights(model: nn.Module, path: str, fresh: Sequence[str] = ()) -> None:
    """Load a model's parameters from a file.

    Parameters
    ----------
    path : a .safetensors file
    fresh : modules that keep their own values if the file has none of their shape

    Raises
    ------
    UserError : for a file that cannot be read, or lacks a parameter
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"model.weights={path} cannot be read ({error}): expected a .safetensors file"
        ) from error
    state = model.state_dict()
    fitting = {k: v for k, v in tensors.items() if k in state and state[k].shape == v.shape}
    if lacking := [k for k in state if k not in fitting and not _is_in(k, fresh)]:
        raise UserError(
            f"model.weights={path} has no {lacking[0]} of shape {list(state[lacking[0]].shape)} "
            f"({len(lacking)} of the model's {len(state)} are missing): expected the weights of this model"
        )
    model.load_state_dict(fitting, strict=False)


class HuggingFace(nn.Module):
    """Classify texts with a pretrained model of the package transformers.

    Parameters
    ----------
    name : a folder that ``save_pretrained`` has written, or a model of the Hugging Face hub
    num_classes : how many classes there are; with another number than the folder's, the last layer is drawn
    vocabulary : how many tokens the data set may have
    tokenizer : what makes them: it has to be the model's own

    Raises
    ------
    UserError : without the package, for a model that cannot be loaded, or tokens that are not its own
    """

    def __init__(
        self, name: str | None, num_classes: int, vocabulary: int | None, tokenizer: str | None
    ) -> None:
        super().__init__()
        if name is None:
            raise UserError(
                "model=huggingface needs a model: set model.name to a folder, or one of the hub"
            )
        transformers = _import("transformers", "model=huggingface")
        transformers.logging.set_verbosity_error()  # or it warns at each node that the last layer is drawn
        transformers.logging.disable_progress_bar()
        try:
            self.model = transformers.AutoModelForSequenceClassification.from_pretrained(
                name, num_labels=num_classes, ignore_mismatched_sizes=True, use_safetensors=True
            )
        except Exception as error:  # of the package, the hub, the network, without a common class
            raise UserError(
                f"model.name={name} cannot be loaded ({error}): expected a folder of save_pretrained, or a "
                "model of the Hugging Face hub"
            ) from error
        known = int(self.model.config.vocab_size)
        if tokenizer is None or vocabulary is None or vocabulary > known:
            raise UserError(
                f"model.name={name} knows the {known} tokens of its own tokenizer: set "
                f"dataset.tokenizer={Path(name) / 'tokenizer.json'} and dataset.vocabulary={known}"
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [n, classes] from tokens [n, T]."""
        logits: Tensor = self.model(input_ids=x, attention_mask=(x != PADDING).long()).logits
        return logits


def _import(package: str, option: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise UserError(f"{option} needs the package {package}: pip install -e '.[lora]'") from error
