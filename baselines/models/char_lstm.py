"""LSTM over characters, like LEAF's for Shakespeare: an embedding, LSTM layers, a linear layer."""

from torch import Tensor, nn


class CharLstm(nn.Module):
    """Predict the next character at each place of a text.

    Parameters
    ----------
    num_classes : how many characters there are
    embedding : length of a character's vector
    hidden : length of the LSTM's state
    layers : how many LSTM layers
    """

    def __init__(self, num_classes: int, embedding: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_classes, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.out = nn.Linear(hidden, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [n, T, characters] from characters [n, T]."""
        states, _ = self.lstm(self.embedding(x))
        return self.out(states)
