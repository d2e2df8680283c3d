"""What a node keeps for SCAFFOLD or FedDyn: its variate c_k, or its gradient g_k, and the one before it.

Both lie in Flower's ``context.state``, and so stay at the node on every runtime. The one before stays until
the server has counted the change from one to the other: a change that did not arrive is taken back.
"""

from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from strategies.shared import protocol


class ControlStore:
    """The node's last c_k that the server has counted.

    Parameters
    ----------
    state : the node's ``context.state``
    counted : the round of the last c_k that the server has counted; 0 for none, None where it counts all

    Attributes
    ----------
    variate : that c_k; None for c_k = 0
    made : the round that made it; 0 for none
    """

    def __init__(self, state: RecordDict, counted: int | None) -> None:
        self.state = state
        self.variate: ArrayRecord | None = None
        self.made = 0
        rounds = state.config_records.get(protocol.CONTROL_ROUNDS)
        if rounds is None or counted == 0:
            return
        for name in (protocol.CONTROL, protocol.CONTROL_BEFORE):
            if counted in (None, rounds[name]):
                self.variate = state.array_records.get(name)
                self.made = int(rounds[name])  # type: ignore[arg-type]
                return

    def renew(self, variate: ArrayRecord, server_round: int) -> None:
        """Keep a new c_k, and the counted one as the one before it."""
        if self.variate is not None:
            self.state[protocol.CONTROL_BEFORE] = self.variate
        self.state[protocol.CONTROL] = variate
        made = {protocol.CONTROL: server_round, protocol.CONTROL_BEFORE: self.made}
        self.state[protocol.CONTROL_ROUNDS] = ConfigRecord(dict(made))


def counted_round(config: ConfigRecord, partition_id: int) -> int | None:
    """Return the round of the last c_k of this node that the server has counted; None for its last."""
    lost: list[int] = config.get(protocol.CONTROL_LOST, [])  # type: ignore[assignment]
    if partition_id not in lost:
        return None
    return config[protocol.CONTROL_COUNTED][lost.index(partition_id)]  # type: ignore[index,return-value]
