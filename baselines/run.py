"""python -m baselines.run: one experiment, or a Hydra multirun of many.

    python -m baselines.run strategy=fedexp dataset=mnist model=lenet runtime=ray
    python -m baselines.run -m strategy=fedavg,fedexp seed=0,1

``resume=true`` leaves a finished run alone and continues an unfinished one from its last checkpoint.
Exit status: 0 when every run finished, 2 after a user's mistake, 1 when a run failed, 130 after Ctrl-C.
"""

import shlex
import sys
import traceback
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from rich.console import Console

from strategies import TooManyFailedRounds

from . import checkpoint, config, experiment
from .errors import RunFailed, UserError
from .runtimes import Inline

_statuses: list[int] = []  # of the runs so far; Hydra discards what a job returns in a sweep


@hydra.main(config_path=str(config.CONF), config_name="config", version_base="1.3")
def _job(cfg: DictConfig) -> None:
    """Run one job of Hydra's; a failure is written down and the sweep goes on."""
    settings = HydraConfig.get()
    overrides = shlex.join(_absolute(item) for item in settings.overrides.task)
    folder = Path(settings.runtime.output_dir)
    errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    try:
        this = experiment.load(overrides)
        console = Console(soft_wrap=True, highlight=False)
        if cfg.resume and checkpoint.finished(this, folder):
            console.print(f"finished already: {folder}")
            return
        this.check()
        runtime = config.build(cfg.runtime)
        checkpoint.check(this, isinstance(runtime, Inline))
        runtime.run(overrides, this.cfg.num_nodes, folder)
    except (UserError, TooManyFailedRounds, TimeoutError, RunFailed) as error:
        if cfg.debug:
            traceback.print_exc()
        errors.print(f"error: {error}")
        _statuses.append(2 if isinstance(error, UserError) else 1)
    except Exception:
        traceback.print_exc()
        _statuses.append(1)
    else:
        console.print(f"results: {folder}")
        _statuses.append(0)


def _absolute(override: str) -> str:
    """Make the data folder independent of the directory that another process starts in."""
    key, _, value = override.partition("=")
    return f"{key}={Path(value).expanduser().resolve()}" if key == "data_root" else override


def main() -> int:
    """Run what the command line names; return the exit status."""
    _statuses.clear()
    try:
        _job()
    except SystemExit as stop:  # Hydra ends so after --help (0) and after a bad override (1)
        return 2 if stop.code else 0
    except KeyboardInterrupt as signal:
        print(f"interrupted {signal}".strip(), file=sys.stderr)
        return 130
    return max(_statuses, default=0)


if __name__ == "__main__":
    sys.exit(main())
