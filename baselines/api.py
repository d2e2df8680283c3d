"""Runs from Python, in a script or a notebook, with objects instead of YAML files.

    from baselines.api import run
    from strategies import FedCM

    frame = run("dataset=digits rounds=20", strategy=FedCM(alpha=0.1), seeds=[0, 1, 2])

An object is written as an option into the results' folder (:mod:`.experiment.objects`); the run is then
like any other.
"""

import os
import shlex
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd

from . import results
from .errors import UserError
from .experiment import objects
from .experiment.overrides import quote
from .run import run_experiment

NOT_IN_FOLDER_NAME = ("resume", "debug", "hydra.searchpath")  # not part of a folder's name


def run(
    overrides: str = "",
    *,
    seeds: Iterable[int] = (0,),
    folder: str | os.PathLike[str] | None = None,
    **choices: object,
) -> pd.DataFrame:
    """Train once for each seed; return all measurements, as :func:`baselines.results.load` does.

    Parameters
    ----------
    overrides : settings as on the command line, ``"dataset=digits client.optimizer.lr=0.1"``
    seeds : a run each
    folder : the folder of the runs' folders, one for each setting and seed; a finished run is not trained
        again, an interrupted one resumes from its checkpoint. Another number of rounds is another setting,
        with its own folder. None: a new folder, ``outputs/DATE/TIME``
    choices : settings by name: a plain value (``rounds=20``), or for a group of options an object
        (``strategy=FedCM(alpha=0.1)``, ``mask=AgreementMask(tau=0.4)``), a class, a function or a
        ``functools.partial`` of one (``model=partial(Net, hidden=32)``, which each node calls for itself), or a
        list of them (``corrections=[Moon, partial(FedSAM, rho=0.1)]``); corrections can have names
        (``corrections={"sharp": FedSAM}``). Fields that a strategy object leaves at FedAvg's defaults follow
        the settings, as ``mask=agreement`` beside ``strategy=FedCM()``

    Raises
    ------
    UserError : for invalid settings, and for an object that cannot be written as an option
    RunFailed : when a run failed; :func:`baselines.results.load` returns those before it
    """
    arguments = shlex.split(overrides)
    arguments += [
        f"{name}={objects.write_plain(value)}" for name, value in choices.items() if objects.is_plain(value)
    ]
    keys = {override.lstrip("+~").partition("=")[0] for override in arguments}
    if "seed" in keys:
        raise UserError("pass seeds=[...] in place of seed: there is one run for each")
    place = Path(datetime.now().strftime("outputs/%Y-%m-%d/%H-%M-%S-%f") if folder is None else folder)
    options: dict[str, Any] = {}
    for group, value in choices.items():
        if not objects.is_plain(value):
            described = objects.describe_option(group, value)
            for twice in described:
                if twice in options or any(override.startswith(f"{twice}=") for override in arguments):
                    raise UserError(
                        f"{twice} is set twice, once by {group}={objects.option_name(value)}: leave one out"
                    )
            options |= described
    label = ",".join(
        override for override in arguments if override.partition("=")[0] not in NOT_IN_FOLDER_NAME
    )
    arguments += [f"{group}={option[objects.NAME]}" for group, option in options.items()]
    if options:
        arguments = add_search_path(arguments, objects.write_options(place, options))
    resume = [] if "resume" in keys else ["resume=true"]
    folders = []
    for seed in seeds:
        seeded = shlex.join([*arguments, f"seed={seed}", *resume])
        objects.require_importable(seeded)
        folders.append(place / objects.name_folder(label, options, seed))
        run_experiment(seeded, folders[-1])
    return results.load(*folders)


def add_search_path(overrides: list[str], folder: Path) -> list[str]:
    """Return the overrides with this folder added to the search path."""
    paths, others = [quote(f"file://{folder}")], []
    for override in overrides:
        key, _, value = override.partition("=")
        if key == "hydra.searchpath":
            paths.append(value.removeprefix("[").removesuffix("]"))
        else:
            others.append(override)
    return [*others, f"hydra.searchpath=[{','.join(filter(None, paths))}]"]
