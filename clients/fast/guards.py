"""Check that what a step reads besides its tensors does not change.

A recorded step repeats what Python said when it was recorded: the attributes of the model's modules and of
the task, and random numbers. It is right only as long as all of that is as it was.
"""

import pickle
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import getitem, is_
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import Parameter

PLAIN_TYPES = frozenset({type(None), bool, int, float, complex, str, bytes})
FIXED_TYPES = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, torch.dtype, torch.device)
BUFFERS_ATTRIBUTE = "_buffers"  # a model that has any is neither recorded nor batched
TORCH_ATTRIBUTES = frozenset(vars(nn.Module())) - {"training"}  # hooks, parameters, modules: mostly empty


class ModelSnapshot:
    """The Python state of a model and its task when this is made.

    It is every attribute and hook of every module: numbers, and what is in containers and other objects, as
    pickle sees it. Tensors are compared by identity and number of in-place changes, parameters by identity
    alone. Buffers, module-level names and attributes of classes are not in it.
    """

    def __init__(self, model: nn.Module, task: object) -> None:
        modules = list(model.modules())
        own, torchs = [vars(module) for module in modules], list[dict[str, object]]()
        for each in own:
            torchs += [value for name, value in each.items() if _is_torch_attribute(name, value)]
        self._dicts = own + torchs
        self._lengths = list(map(len, self._dicts))
        self._all = _DictEntries([(each, name) for each in self._dicts for name in each])
        self._direct = _DictEntries(
            [(each, name) for each in own for name in each if name not in TORCH_ATTRIBUTES]
        )
        entries = [value for each in torchs for value in each.values()]  # hooks may be objects
        self._deep = [task, *(value for value in self._direct.values + entries if not _is_simple(value))]
        self._within = list_parts(*self._deep)

    def has_same_objects(self) -> bool:
        """Say whether each attribute is the object that it was.

        It takes a microsecond or two, so that each recorded step can ask. Only :meth:`is_unchanged` finds changes
        inside an attribute, and new attributes.
        """
        return self._direct.has_same_objects()

    def is_unchanged(self) -> bool:
        """Say whether all is as it was."""
        return (
            list(map(len, self._dicts)) == self._lengths
            and self._all.has_equal_values()
            and has_same_parts(list_parts(*self._deep), self._within)
        )


class _DictEntries:
    """Entries of dictionaries, and what they hold."""

    def __init__(self, places: Sequence[tuple[dict[str, object], str]]) -> None:
        self.owners, self.names = [owner for owner, _ in places], [name for _, name in places]
        self.values = list(map(getitem, self.owners, self.names))

    def has_same_objects(self) -> bool:
        try:
            return all(map(is_, map(getitem, self.owners, self.names), self.values))
        except KeyError:  # one was deleted
            return False

    def has_equal_values(self) -> bool:
        try:
            return self.has_same_objects() or all(
                map(_is_equal, map(getitem, self.owners, self.names), self.values)
            )
        except KeyError:
            return False


def _is_torch_attribute(name: str, value: object) -> bool:
    return name in TORCH_ATTRIBUTES and name != BUFFERS_ATTRIBUTE and isinstance(value, dict)


def _is_simple(value: object) -> bool:
    """Say whether an object has no parts to compare."""
    if type(value) is tuple:
        return all(type(item) in PLAIN_TYPES for item in value)
    return type(value) in PLAIN_TYPES or isinstance(value, (*FIXED_TYPES, Parameter, nn.Module))


def list_parts(*parts: object) -> list[object]:
    """Return all the parts of objects in one list, for :func:`has_same_parts`."""
    pieces: list[object] = []
    ahead, entered = list(parts), set[int]()
    while ahead:
        value = ahead.pop()
        if isinstance(value, dict):
            pieces += value  # the keys
            pieces.append(len(value))
            ahead += value.values()
        elif isinstance(value, list | tuple | set | frozenset):
            pieces.append(len(value))
            ahead += value
        else:
            pieces.append(value)
            if (
                type(value) not in PLAIN_TYPES
                and id(value) not in entered
                and not isinstance(value, FIXED_TYPES)
            ):
                entered.add(id(value))
                ahead += _state(value)
    return pieces


def _state(value: object) -> Iterator[object]:
    """Yield what decides how an object behaves."""
    if isinstance(value, Tensor):
        if not isinstance(value, Parameter) and not value.is_inference():
            yield value._version
    elif isinstance(value, nn.Module):
        yield {name: each for name, each in vars(value).items() if name != BUFFERS_ATTRIBUTE}
    else:
        try:
            reduced = value.__reduce_ex__(4)
        except Exception:  # a lock, an open file: compared by identity alone
            return
        yield from reduced[:3]
        yield from (list(items) for items in reduced[3:5] if items is not None)


def has_same_parts(one: list[object], other: list[object]) -> bool:
    """Say whether two lists of parts are equal."""
    return len(one) == len(other) and all(map(_is_equal, one, other))


def _is_equal(one: object, other: object) -> bool:
    if one is other:
        return True
    return type(one) is type(other) and type(one) in PLAIN_TYPES and (one == other or one != one)  # NaN


class SideEffectCheck:
    """Finds what a step changes besides its results; make it before the step."""

    def __init__(self, model: nn.Module, task: object) -> None:
        self._snapshot = ModelSnapshot(model, task)
        self._random = _get_random_state()

    def find_side_effect(self) -> str | None:
        """Return what has changed meanwhile, as the model's doing; None for nothing."""
        if _get_random_state() != self._random:
            return "the model draws random numbers"
        return None if self._snapshot.is_unchanged() else "the model changes its own attributes"

    def restore_generators(self) -> None:
        """Put the random generators back to where they were before the step."""
        _set_random_state(self._random)


@contextmanager
def restore_random_state() -> Iterator[None]:
    """Put the random generators back afterwards to where they were before."""
    before = _get_random_state()
    try:
        yield
    finally:
        _set_random_state(before)


def _get_random_state() -> bytes:
    """Return the state of Python's, numpy's and torch's global generators."""
    states: list[object] = [random.getstate(), np.random.get_state()]  # noqa: NPY002
    states += [state.numpy() for state in (torch.get_rng_state(), *get_accelerator_states())]
    return pickle.dumps(states)


def _set_random_state(state: bytes) -> None:
    python, numpy, cpu, *devices = pickle.loads(state)
    random.setstate(python)
    np.random.set_state(numpy)  # noqa: NPY002
    torch.set_rng_state(torch.from_numpy(cpu))
    set_accelerator_states([torch.from_numpy(each) for each in devices])


def get_accelerator_states() -> list[Tensor]:
    """Return the states of an accelerator's generators; none where no accelerator has been used."""
    module = _list_used_accelerators()
    if module is None:
        return []
    several = getattr(module, "get_rng_state_all", None)
    return list(several()) if several else [module.get_rng_state()]  # Apple's is one


def set_accelerator_states(states: list[Tensor]) -> None:
    """Set the states of an accelerator's generators."""
    module = _list_used_accelerators()
    if module is None or not states:
        return
    several = getattr(module, "set_rng_state_all", None)
    if several:
        several(states)
    else:
        module.set_rng_state(states[0])


def _list_used_accelerators() -> ModuleType | None:
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if device is None:
        return None
    module: ModuleType = torch.get_device_module(device)
    awake = getattr(module, "is_initialized", None)
    return module if awake is None or awake() else None
