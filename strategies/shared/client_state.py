"""Client state: what a node keeps between rounds, for each group's model.

A node may train several models (:class:`~strategies.Grouped`), and what it keeps of one, say an optimiser's
moments or a private head, has no place in another. In Flower's ``context.state`` a group's record is named
``name@group``; without groups records have their own names.
"""

from flwr.app import RecordDict

GROUP_SEPARATOR = "@"  # in no record's own name


def load(state: RecordDict, group: str) -> RecordDict:
    """Return what a node keeps for a group's model, by the records' own names."""
    if not group:
        return state
    own = {name: record for name, record in state.items() if _owner(name) == group}
    return RecordDict({name.partition(GROUP_SEPARATOR)[0]: record for name, record in own.items()})


def save(memory: RecordDict, state: RecordDict, group: str) -> None:
    """Put the ``memory`` of a group's model, which may have been renewed, back into the node's state."""
    if group:
        state.update({f"{name}{GROUP_SEPARATOR}{group}": record for name, record in memory.items()})


def select(state: RecordDict, group: str) -> RecordDict:
    """Return a group's records by the names that they have in the state, and those of no group; without
    groups, all of them.
    """
    if not group:
        return state
    return RecordDict({name: record for name, record in state.items() if _owner(name) in ("", group)})


def merge(state: RecordDict, returned: RecordDict, group: str) -> RecordDict:
    """Return the state in which ``returned`` replaces what :func:`select` gave for a group."""
    went = set(select(state, group))
    of_others = {name: record for name, record in state.items() if name not in went}
    return RecordDict({**of_others, **returned})


def _owner(name: str) -> str:
    return name.partition(GROUP_SEPARATOR)[2]
