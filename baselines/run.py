"""python -m baselines.run: one experiment, or a Hydra multirun of many.

    python -m baselines.run strategy=fedexp dataset=mnist model=lenet runtime=ray
    python -m baselines.run -m strategy=fedavg,fedexp seed=0,1

``resume=true`` leaves a finished run alone; one that is unfinished, or asked for more rounds, goes on from
its last checkpoint. ``resume=false`` writes over it; without either it is refused.
Exit status: 0 when every run finished, 2 after a user's mistake, 1 when a run failed or has diverged (its
last evaluation is not finite), 130 after Ctrl-C, SIGTERM or SIGHUP.
"""

import gc
import logging
import math
import os
import re
import shlex
import sys
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import hydra
from hydra.conf import HydraConf
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from hydra.utils import to_absolute_path
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from yaml import YAMLError  # type: ignore[import-untyped]

from .engine.signals import make_interruptible
from .errors import JobFailed, RunFailed, UserError
from .experiment import overrides as places
from .experiment.hydra_callbacks import (
    check_direction,
    check_folder,
    closing_job_log,
    is_search,
    run_prefix,
    without_hydras_lines,
)
from .experiment.messages import describe_mistake, describe_unreadable
from .experiment.overrides import carry_overrides, quote, require_keys, sort_overrides_last

YAML_WORDS = {"=None": "=null", "=True": "=true", "=False": "=false"}
logger = logging.getLogger("baselines")  # only for the job's log; lines for the console are printed
logger.addHandler(logging.NullHandler())
OTHER_FOLDER = "set hydra.run.dir, or for a sweep hydra.sweep.dir and .subdir"
NO_SITES = (
    "dataset=local has no partitions: play its sites with runtime=inline or superlink and "
    "runtime.sites={name: path, ...}, or deploy them"
)


@hydra.main(config_path=str(places.CONF), config_name="config", version_base="1.3")
def _job(cfg: DictConfig) -> float | None:
    """Run one of Hydra's jobs; return its objective, for a sweeper that optimises it.

    Raises
    ------
    JobFailed : in a sweep, when it failed and its error is printed; the other jobs continue
    SystemExit : the same for a single job
    """
    with _without_collection():
        nodes = _begun(cfg)
        from .experiment import preflight  # noqa: F401 - imports torch
    with nodes:
        return _done(cfg, HydraConfig.get())


@contextmanager
def _without_collection() -> Iterator[None]:
    """Import without garbage collection, and exclude imports from it: saves 0.6 s at start and end."""
    if "torch" in sys.modules:  # called by another program, whose garbage must be collected
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _begun(cfg: DictConfig) -> AbstractContextManager[object]:
    """Let the runtime start in the background, while this process imports torch and checks the experiment.

    It does not with ``resume=true``, as the run may be finished. Later checks report a wrong configuration.
    """
    with suppress(Exception):
        runtime: Any = OmegaConf.to_container(cfg.runtime, resolve=True)
        module, _, name = runtime["_target_"].rpartition(".")
        begin = getattr(getattr(import_module(module), name), "begin", None)
        if begin and not cfg.resume:
            nodes: AbstractContextManager[object] = begin(cfg.nodes_per_round or cfg.num_nodes, runtime)
            return nodes
    return nullcontext()


def _done(cfg: DictConfig, settings: HydraConf) -> float | None:
    from strategies import TooManyFailedRounds  # and with it torch

    from .engine.metrics import best_round, is_lower_better, read_objective

    folder = Path(settings.runtime.output_dir)
    try:
        check_folder(settings)
        check_direction(settings, cfg.objective, is_lower_better(str(cfg.objective)))
        overrides = shlex.join([*_searchpath(settings), *carry_overrides(settings, cfg)])
        run_experiment(overrides, folder)
        stopping = cfg.early_stopping
        best = None if stopping.patience is None else best_round(folder, stopping.metric)
        value = read_objective(folder, cfg.objective, best)
        if value is None and is_search(settings):
            raise UserError(f"objective={cfg.objective} was not measured: see {folder}/metrics.csv")
        if value is not None and math.isnan(value) and is_search(settings):  # nan would end the search
            raise RunFailed(f"objective={cfg.objective} is nan: the run has diverged, and counts as failed")
        return value
    except KeyboardInterrupt as signal:
        raise KeyboardInterrupt(f"interrupted{_named(signal)}; {_remedy(cfg, settings)}") from None
    except (UserError, TooManyFailedRounds, RunFailed, OSError) as error:  # OSError: a full disk, say
        if _debugs(cfg):
            traceback.print_exc()
        _say_error(error)
        status = 2 if isinstance(error, UserError) else 1
    except Exception as error:
        traceback.print_exc()
        logger.exception("the run failed")
        _say_error(RunFailed(f"{type(error).__name__}: {error} (see above)"))
        status = 1
    if settings.mode == RunMode.RUN:
        sys.exit(status)
    raise JobFailed(status)


def _named(signal: KeyboardInterrupt) -> str:
    """Return the signal's name in brackets; empty if Python does not give it."""
    return f" ({signal})" if str(signal) else ""


def _remedy(cfg: DictConfig, settings: HydraConf) -> str:
    """Return how to continue an interrupted run."""
    command = "the same command" if cfg.resume else "the same command with resume=true"
    if settings.mode == RunMode.RUN and not cfg.checkpoint_every:
        return f"{command} starts from round 1 (checkpoint_every=10 would let it go on)"
    return f"{command} goes on"


def run_experiment(overrides: str, folder: Path) -> None:
    """Run an experiment, unless it is finished, and write its results into a folder."""
    from .engine import resume
    from .engine.loggers import set_log_colors
    from .engine.metrics import check_divergence, describe_end
    from .engine.rounds import require_clock
    from .engine.run_folder import check_overwriting
    from .experiment import device
    from .experiment import experiment as experiments
    from .experiment.preflight import check

    set_log_colors()
    console = Console(soft_wrap=True, highlight=False, markup=False)
    experiment = experiments.load_anew(overrides)
    if experiment.settings.resume and resume.is_finished(experiment, folder):
        console.print(f"finished already: {folder}{resume.describe_missing_outputs(experiment, folder)}")
        check_divergence(experiment, folder)
        return
    check_overwriting(experiment, folder)
    check(experiment)
    if line := device.describe_choice(experiment.settings.device):
        console.print(line)
    runtime = experiment.runtime()
    if experiment.dataset.site is not None and not getattr(runtime, "sites", None):
        raise UserError(NO_SITES)
    has_simulated_nodes = getattr(runtime, "gives_node_states", False)
    require_clock(experiment, has_simulated_nodes)
    if experiment.settings.checkpoint_every:
        resume.check_resumable(experiment, has_simulated_nodes)
    runtime.run(overrides, experiment.settings.num_nodes, folder)
    console.print(f"results: {folder}")
    if line := describe_end(folder):
        console.print(line)


def _say_error(error: Exception) -> None:
    """Print an error as the command line spells values, with null for Python's None."""
    line = re.sub(r"=(None|True|False)(?=[\s:;]|$)", lambda value: YAML_WORDS[value[0]], str(error))
    console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    console.print(f"{run_prefix()}error: {line}")
    logger.error(line)


def _searchpath(settings: HydraConf) -> list[str]:
    """Return an override with the folders of ``--config-dir`` or ``hydra.searchpath``, for other processes."""
    paths = []
    for source in settings.runtime.config_sources:
        if source.provider.endswith("command-line"):
            path = to_absolute_path(source.path) if source.schema == "file" else source.path
            paths.append(quote(f"{source.schema}://{path}"))
    return [f"hydra.searchpath=[{','.join(paths)}]"] if paths else []


def _debugs(cfg: DictConfig) -> bool:
    """Say whether tracebacks are requested; invalid values of ``debug`` are reported elsewhere."""
    with suppress(OmegaConfBaseException):
        return cfg.debug is True
    return False


def _explain(error: Exception) -> Exception:
    """Return a one-line error for one of Hydra, or of logging in a folder that is not writable."""
    if isinstance(error.__cause__, OSError):
        return UserError(f"{error.__cause__}: {OTHER_FOLDER}")
    return describe_mistake(error, sys.argv[1:])


def main() -> int:
    """Run the experiment or sweep of the command line; return the exit status."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # exceptions arrive here instead of being printed by Hydra
    os.environ.setdefault("SUBMITIT_LOG_LEVEL", "ERROR")  # it keeps warning of missing accounting
    try:
        with make_interruptible(), without_hydras_lines(), closing_job_log():
            sys.argv[1:] = sort_overrides_last(require_keys(sys.argv[1:]))
            _job()
    except UserError as error:
        _say_error(error)
        return 2
    except SystemExit as stop:  # Hydra ends so too, after --help
        return int(stop.code or 0)
    except JobFailed as failed:
        return failed.status
    except (HydraException, OmegaConfBaseException) as error:
        _say_error(describe_mistake(error, sys.argv[1:]))
        return 2
    except YAMLError as error:
        _say_error(describe_unreadable(error))
        return 2
    except BrokenPipeError:  # as with a pipe into head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discard the rest
        return 1
    except OSError as error:
        _say_error(UserError(f"{error}: {OTHER_FOLDER}"))
        return 2
    except (ValueError, TypeError, AttributeError, AssertionError) as error:
        _say_error(_explain(error))  # Hydra's for dataset=3; a run's stay in _job
        return 2
    except ImportError as error:
        if not str(error).startswith("Flower "):
            raise
        _say_error(error)  # an untested version
        return 2
    except KeyboardInterrupt as signal:
        text = str(signal)
        print(text if text.startswith("interrupted") else f"interrupted{_named(signal)}", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
