"""The server's data: what a strategy may compute on examples of the server's own."""

from collections.abc import Mapping, Sequence

from flwr.app import ArrayRecord
from torch import Tensor


class ServerData:
    """The model on the server's examples; in a run those that ``validation_size`` sets aside.

    Whoever runs a strategy that ``needs_server_data`` gives it one (``set_server_data``). In a Flower app of
    your own, subclass it and define what the strategy calls: each method that exists names who does.
    """

    @property
    def num_inputs(self) -> int:
        """Return how many inputs there are: the rows 0 ... num_inputs - 1 of :meth:`compute_outputs`."""
        raise NotImplementedError

    def compute_outputs(self, arrays: Mapping[str, Tensor], rows: Tensor) -> Tensor:
        """Return the model's outputs for some inputs: logits [n, ..., classes], for FedDF and CoDistillation.

        The model is in evaluation mode, and no label is looked at.

        Parameters
        ----------
        arrays : its parameters and buffers by name; the outputs can be differentiated by those that require it
        rows : [n], which inputs
        """
        raise NotImplementedError

    def compute_correctness(self, models: Sequence[ArrayRecord]) -> Tensor:
        """Return whether each model is right about each example, [models, examples] of bools, for SelectiveFedAvg."""
        raise NotImplementedError

    def compute_gradient(self, model: ArrayRecord) -> ArrayRecord:
        """Return the gradient of the loss on all examples at a model, by the model's names, for FedMeta."""
        raise NotImplementedError
