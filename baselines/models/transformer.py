"""Small transformers over tokens (Vaswani et al., *Attention Is All You Need*, NeurIPS 2017).

Layers normalise their inputs (Xiong et al., *On Layer Normalization in the Transformer Architecture*, ICML
2020), and position embeddings are learnt. Attention is written as plain matrix products, which recorded and
batched steps support.
"""

import math

import torch
from torch import Tensor, nn

from strategies.shared.checks import require

from .shapes import text_length

PADDING = 0  # the token that fills up a short text
HIDDEN_SCORE = -1e9  # a score with weight 0 beside others; if all are hidden, weights are equal


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inputs = nn.Linear(width, 3 * width)  # queries, keys and values
        self.outputs = nn.Linear(width, width)

    def forward(self, x: Tensor, is_hidden: Tensor) -> Tensor:
        """Return [n, T, width] for ``x`` of that shape; ``is_hidden`` [..., T] masks positions."""
        q, k, v = self.inputs(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind()
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        shares = scores.masked_fill(is_hidden, HIDDEN_SCORE).softmax(-1)
        return self.outputs((shares @ v).transpose(1, 2).flatten(2))


class TransformerLayer(nn.Module):
    """Attention, then a two-layer perceptron per position, both with residual connections."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, is_hidden: Tensor) -> Tensor:
        """Return [n, T, width] for ``x`` of that shape."""
        x = x + self.dropout(self.attention(self.norm1(x), is_hidden))
        return x + self.dropout(self.down(nn.functional.gelu(self.up(self.norm2(x)))))


class PositionEmbedding(nn.Embedding):
    """A learnt vector for each position of a text."""

    def forward(self, input: Tensor) -> Tensor:
        """Return [T, width] for tokens [n, T]."""
        return self.weight[: input.shape[1]]


class Encoder(nn.Module):
    """Token and position embeddings, and layers; its settings are those of :class:`Transformer`."""

    def __init__(
        self, vocabulary: int, length: int, width: int, heads: int, layers: int, dropout: float
    ) -> None:
        super().__init__()
        require(heads > 0 and width % heads == 0, "model.heads", heads, f"a divisor of model.width={width}")
        self.tokens, self.places = nn.Embedding(vocabulary, width), PositionEmbedding(length, width)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(TransformerLayer(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for table in (self.tokens, self.places):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, x: Tensor, is_hidden: Tensor) -> Tensor:
        """Return [n, T, width] for tokens [n, T]."""
        states = self.dropout(self.tokens(x) + self.places(x))
        for layer in self.layers:
            states = layer(states, is_hidden)
        return self.norm(states)


class Transformer(nn.Module):
    """Classify texts by the mean over their tokens, without padding.

    Parameters
    ----------
    vocabulary : how many tokens there are; number 0 fills up short texts
    input_shape : [T], the tokens of a text
    num_classes : how many classes there are
    width : length of a token's vector
    heads : of attention; a divisor of ``width``
    layers : how many there are
    dropout : share of values left out in training; above 0 nodes cannot be batched
    """

    def __init__(
        self,
        vocabulary: int,
        input_shape: list[int],
        num_classes: int,
        width: int = 64,
        heads: int = 4,
        layers: int = 2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        length = text_length("transformer", input_shape)
        self.encoder = Encoder(vocabulary, length, width, heads, layers, dropout)
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [n, classes] from tokens [n, T]."""
        is_hidden = x == PADDING
        states = self.encoder(x, is_hidden[:, None, None]).masked_fill(is_hidden[..., None], 0)
        counts = (~is_hidden).sum(1, keepdim=True).clamp(min=1)
        return self.head(states.sum(1) / counts)


class CausalTransformer(nn.Module):
    """Predict the next token at each position of a text, from the tokens up to there.

    Parameters
    ----------
    input_shape : [T], the tokens of a text
    num_classes : how many tokens there are
    width : length of a token's vector
    heads : of attention; a divisor of ``width``
    layers : how many there are
    dropout : share of values left out in training; above 0 nodes cannot be batched
    """

    def __init__(
        self,
        input_shape: list[int],
        num_classes: int,
        width: int = 64,
        heads: int = 4,
        layers: int = 2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        length = text_length("causal_transformer", input_shape)
        self.encoder = Encoder(num_classes, length, width, heads, layers, dropout)
        self.head = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [n, T, tokens] from tokens [n, T]."""
        length = x.shape[1]
        is_later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        return self.head(self.encoder(x, is_later))
