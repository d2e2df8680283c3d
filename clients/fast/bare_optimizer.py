"""``torch.optim`` without what torch wraps around it; not public in torch, hence alone here."""

import inspect
from collections.abc import Callable
from functools import partial

from torch.optim import Optimizer


def spare_compiler() -> None:
    """Keep the first optimiser of a process from importing torch's compiler, which takes a second.

    It would tell the compiler to pass over these methods; here nothing is compiled.
    """
    for method in (Optimizer.add_param_group, Optimizer.state_dict, Optimizer.load_state_dict):
        plain = inspect.unwrap(method)
        vars(plain).setdefault("__dynamo_disable", plain)


def bare_step(optimizer: Optimizer) -> Callable[[], None]:
    """Return the optimiser's step without the hooks that torch wraps around it for its profiler.

    They cost more than the step itself on small models, and so does asking, step by step, whether the
    parameters are on an accelerator.
    """
    for group in optimizer.param_groups:
        if group.get("foreach", False) is None and group["params"][0].device.type == "cpu":
            group["foreach"] = False  # what None comes to
    return partial(inspect.unwrap(type(optimizer).step), optimizer)
