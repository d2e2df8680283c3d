"""Model, data, training and testing."""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """A small network for pictures of 8x8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(64, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [n, 10]."""
        return self.fc2(torch.relu(self.fc1(x)))


def load_data(
    partition_id: int, num_partitions: int, batch_size: int
) -> tuple[DataLoader, DataLoader]:
    """Return a node's data, four fifths for training."""
    digits = load_digits()
    x = torch.tensor(
        digits.data[partition_id::num_partitions] / 16, dtype=torch.float32
    )
    y = torch.tensor(digits.target[partition_id::num_partitions])
    cut = len(x) * 4 // 5
    train, test = (
        TensorDataset(x[:cut], y[:cut]),
        TensorDataset(x[cut:], y[cut:]),
    )
    return DataLoader(train, batch_size, shuffle=True), DataLoader(
        test, batch_size
    )


def train(net: nn.Module, loader: DataLoader, epochs: int, lr: float) -> float:
    """Train the model; return the mean loss."""
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net.train()
    total = 0.0
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / (epochs * len(loader))


def test(net: nn.Module, loader: DataLoader) -> tuple[float, float]:
    """Return mean loss and accuracy."""
    net.eval()
    loss, right, count = 0.0, 0, 0
    with torch.no_grad():
        for x, y in loader:
            outputs = net(x)
            loss += nn.functional.cross_entropy(
                outputs, y, reduction="sum"
            ).item()
            right += int((outputs.argmax(1) == y).sum())
            count += len(y)
    return loss / count, right / count
