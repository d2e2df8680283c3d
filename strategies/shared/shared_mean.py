"""SharedMean: what several replies carry in the place of a model each, where a grid has added them up."""

from flwr.app import ArrayRecord


class SharedMean(ArrayRecord):
    """The weighted mean of the models of some of a round's nodes; the reply of each of them carries it.

    Parameters
    ----------
    record : its values
    """

    def __init__(self, record: ArrayRecord) -> None:
        super().__init__()  # which would make bytes of what is held
        for name, array in record.items():
            self[name] = array
