"""``torch.optim`` without what torch wraps around it; not public in torch, hence alone here."""

import inspect
from collections.abc import Callable
from functools import partial

from torch import Tensor
from torch.optim import SGD, Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks


def spare_compiler() -> None:
    """Keep the first optimiser of a process from importing torch's compiler, which takes a second.

    It would tell the compiler to pass over these methods; here nothing is compiled.
    """
    for method in (Optimizer.add_param_group, Optimizer.state_dict, Optimizer.load_state_dict):
        plain = inspect.unwrap(method)
        vars(plain).setdefault("__dynamo_disable", plain)


def step_without_hooks(optimizer: Optimizer) -> Callable[[], None]:
    """Return the optimiser's step without what torch wraps around it for its profiler.

    That costs more than the step itself on small models, and so does asking, step by step, whether the
    parameters are on an accelerator. What others have wrapped around it stays.
    """
    for group in optimizer.param_groups:
        if group.get("foreach", False) is None and group["params"][0].device.type == "cpu":
            group["foreach"] = False  # what None comes to
    if hooked(optimizer):
        return optimizer.step  # type: ignore[return-value]
    return partial(inspect.unwrap(type(optimizer).step, stop=_not_torchs), optimizer)


def hooked(optimizer: Optimizer) -> bool:
    """Say whether this optimiser's step is more than its class's: it has hooks, or was replaced."""
    before, after = optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks
    everyones = _global_optimizer_pre_hooks or _global_optimizer_post_hooks
    return bool(before or after or everyones or "step" in vars(optimizer))


def is_descent(optimizer: Optimizer) -> bool:
    """Say whether a fresh optimiser's steps are w <- w - lr d, with d of the gradients and its momentum.

    It is SGD as it comes; not where it maximises, or where its momentum begins with a dampened gradient.
    """
    (group, *more) = optimizer.param_groups
    if type(optimizer) is not SGD or more or hooked(optimizer) or isinstance(group["lr"], Tensor):
        return False
    return not any(group[name] for name in ("dampening", "maximize", "differentiable", "fused"))


def _not_torchs(step: Callable[..., object]) -> bool:
    """Say whether a function was written outside of torch; a wrapper bears the name of what it wraps."""
    return not str(getattr(step, "__globals__", {}).get("__name__")).startswith("torch.")
