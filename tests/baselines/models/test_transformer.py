"""Transformers beside torch's own layers, and what they may look at."""

import pytest
import torch
from torch import Tensor, nn

from baselines.errors import UserError
from baselines.experiment import config
from baselines.models import CausalTransformer, Transformer
from baselines.models.transformer import Encoder, TransformerLayer

TEXTS = torch.tensor([[3, 1, 4, 0, 0], [2, 7, 1, 8, 2], [5, 0, 0, 0, 0]])


def model(length: int = 5) -> Transformer:
    torch.manual_seed(0)
    return Transformer(10, [length], 3, width=8, heads=2).eval()


def torchs(layer: TransformerLayer) -> nn.TransformerEncoderLayer:
    """Return torch's layer with the same parameters."""
    other = nn.TransformerEncoderLayer(8, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True)
    names = {
        "self_attn.in_proj_": layer.attention.inputs,
        "self_attn.out_proj.": layer.attention.outputs,
        "linear1.": layer.up,
        "linear2.": layer.down,
        "norm1.": layer.norm1,
        "norm2.": layer.norm2,
    }
    other.load_state_dict(
        {f"{k}{part}": getattr(v, part) for k, v in names.items() for part in ("weight", "bias")}
    )
    return other.train()  # its fast path for evaluation cuts off padding


def expected(encoder: Encoder, x: Tensor, **masks: Tensor) -> Tensor:
    states = encoder.tokens(x) + encoder.places.weight[: x.shape[1]]
    for layer in encoder.layers:
        assert isinstance(layer, TransformerLayer)
        states = torchs(layer)(states, **masks)
    return encoder.norm(states)  # type: ignore[no-any-return]


def test_logits_are_those_of_torchs_layers_and_the_mean_over_tokens() -> None:
    ours = model()
    states = expected(ours.encoder, TEXTS, src_key_padding_mask=TEXTS == 0)
    means = torch.stack([states[0, :3].mean(0), states[1].mean(0), states[2, 0]])
    torch.testing.assert_close(ours(TEXTS), ours.head(means))


def test_next_tokens_are_those_of_torchs_layers_with_a_causal_mask() -> None:
    torch.manual_seed(0)
    ours = CausalTransformer([5], 10, width=8, heads=2).eval()
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    torch.testing.assert_close(ours(TEXTS), ours.head(expected(ours.encoder, TEXTS, src_mask=mask)))


def test_padding_changes_nothing() -> None:
    long, short = model(), model(3)
    short.load_state_dict(long.state_dict() | {"encoder.places.weight": long.encoder.places.weight[:3]})
    torch.testing.assert_close(long(TEXTS[::2]), short(TEXTS[::2, :3]))


def test_an_empty_text_has_the_heads_bias() -> None:
    ours = model()
    torch.testing.assert_close(ours(torch.zeros(1, 5, dtype=torch.int64))[0], ours.head.bias)


def test_later_tokens_are_not_seen() -> None:
    torch.manual_seed(0)
    ours = CausalTransformer([5], 10, width=8, heads=2).eval()
    other = TEXTS.clone()
    other[:, 3] = 9
    same = (ours(TEXTS) == ours(other)).all(2)
    assert same.all(0).tolist() == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("model=transformer", "^model=transformer takes texts, but .*dataset=text$"),
        ("model=causal_transformer", "^model=causal_transformer takes texts"),
        (
            "model=transformer dataset.shape=[5] model.heads=3",
            "^model.heads=3 .*a divisor of model.width=64$",
        ),
    ],
)
def test_what_does_not_fit_is_refused(overrides: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        config.build(config.load(overrides).model)
