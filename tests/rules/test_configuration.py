"""The configuration is read in baselines/experiment alone, and a default stands in one place."""

import ast
import inspect
from importlib import import_module
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from helpers.checkout import ROOT
from helpers.source import FILES, name_of

READERS = ("baselines/experiment/", "baselines/run.py")  # the latter is what Hydra calls
MOST_OF_A_FUNCTION = 40
OUTSIDE = [path for path in FILES if not name_of(path).startswith(READERS)]


@pytest.mark.parametrize("path", OUTSIDE, ids=name_of)
def test_the_configuration_stays_where_experiments_are_built(path: Path) -> None:
    tree = ast.parse(path.read_text())
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not {"cfg", "DictConfig"} & (attributes | names)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_functions_are_short(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            described = ast.get_docstring(node) is not None  # what stands above the first statement is free
            first = node.body[described] if len(node.body) > described else node.body[0]
            assert node.end_lineno is not None
            assert node.end_lineno - first.lineno < MOST_OF_A_FUNCTION, node.name


def test_no_file_is_named_utils() -> None:
    assert not list(ROOT.glob("*/utils.py"))


OPTIONS = [path for path in sorted((ROOT / "conf").rglob("*.yaml")) if "experiment" not in path.parts]
CHOSEN = {  # what YAML chooses otherwise than the class, and why
    ("clients.augment.Augment", "padding"): "each data set has its own",
    ("clients.augment.Augment", "flip"): "each data set has its own",
    ("clients.optimizers.RMSGD", "weight_decay"): "the class follows torch, whose default is 0",
}


def defaults(target: str) -> dict[str, object]:
    """Return the plain defaults of a class or function of ours."""
    module, _, name = target.rpartition(".")
    parameters = inspect.signature(getattr(import_module(module), name)).parameters.values()
    plain = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
    return {key: value for key, value in plain.items() if isinstance(value, bool | int | float | str)}


def parts(node: object) -> list[DictConfig]:
    """Return every part of ours in a YAML file."""
    if not isinstance(node, DictConfig):
        return []
    inner = [
        part for key in node if not OmegaConf.is_missing(node, key) for part in parts(node._get_node(key))
    ]
    own = str(node._get_node("_target_")).startswith(("strategies.", "clients.", "baselines."))
    return [node, *inner] if own else inner


@pytest.mark.parametrize("path", OPTIONS, ids=name_of)
def test_a_default_in_yaml_is_that_of_the_class(path: Path) -> None:
    for part in parts(OmegaConf.load(path)):
        target = str(part._get_node("_target_"))
        for key, value in defaults(target).items():
            if key in part and not OmegaConf.is_interpolation(part, key) and (target, key) not in CHOSEN:
                assert part[key] == value, f"{target}: {key}"
