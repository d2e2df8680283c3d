"""The mode that Hydra was started in: one run, a sweep of them, or a search for the best."""

from hydra.conf import HydraConf
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import OmegaConf

from baselines.errors import UserError


def searches(settings: HydraConf) -> bool:
    """Say whether a sweeper looks for the best; Hydra's own takes all that there is."""
    return settings.mode == RunMode.MULTIRUN and not settings.sweeper._target_.endswith(".BasicSweeper")


def named() -> str:
    """Return what this run's lines begin with where its launcher may run others beside it, else nothing."""
    settings = HydraConfig.get() if HydraConfig.initialized() else None
    if settings is None or settings.mode != RunMode.MULTIRUN:
        return ""
    one_by_one = settings.launcher._target_.endswith(".BasicLauncher")
    return "" if one_by_one else f"run {settings.job.num + 1}: "


def check_direction(settings: HydraConf, objective: str, lowers: bool) -> None:
    """Refuse a search for the worst, as of the greatest loss.

    Raises
    ------
    UserError : where less of the objective is better (``lowers``) and more is looked for, or the reverse
    """
    asked = str(settings.sweeper.get("direction", "")).rpartition(".")[2].lower()
    wanted = "minimize" if lowers else "maximize"
    if searches(settings) and asked in ("minimize", "maximize") and asked != wanted:
        raise UserError(
            f"objective={objective} with hydra.sweeper.direction={asked} looks for the worst: set "
            f"hydra.sweeper.direction={wanted}"
        )


def check_folder(settings: HydraConf) -> None:
    """Refuse a folder that Hydra does not read: it has one setting for a run, and one for a sweep.

    Raises
    ------
    UserError : where the other one is given alone
    """
    written = OmegaConf.to_container(settings.overrides, resolve=False)["hydra"]  # type: ignore[call-overload,index]
    given = {override.lstrip("+").partition("=")[0] for override in written}
    read, other, how = "hydra.run.dir", "hydra.sweep.dir", "without"
    if settings.mode == RunMode.MULTIRUN:
        read, other, how = other, read, "with"
    if other in given and read not in given:
        raise UserError(f"{other} is not read {how} -m: set {read}")
