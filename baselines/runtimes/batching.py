"""Whether the nodes that a process trains in a round train batched."""


def check(batch_clients: bool | str) -> None:
    """Refuse any other choice."""
    if batch_clients not in (True, False, "auto"):
        raise ValueError(f"runtime.batch_clients={batch_clients} is unknown: expected auto, true or false")


def chosen(batch_clients: bool | str, overrides: str) -> bool:
    """Return the choice for one experiment."""
    from baselines.apps import batching_pays

    return batching_pays(overrides) if batch_clients == "auto" else bool(batch_clients)
