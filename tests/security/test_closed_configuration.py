"""What is submitted to a deployment is data: it imports and reads nothing that is not on the list."""

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, RecordDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from baselines.apps import main
from baselines.errors import UserError
from baselines.experiment import closed, config, experiment
from strategies.shared.flower_private import become_server

PAYLOAD = "florilegium_attack_payload"
HONEST = [  # what a submitter may ask for
    "strategy=fedexp num_nodes=3 rounds=20",
    "experiment=gma/table4_4",
    "dataset=mnist partitioner=dirichlet partitioner.alpha=0.1 model=lenet",
    "strategy=selective grouping=kmeans grouping.num_groups=2 validation_size=100",
    "client=adam client.optimizer.lr=0.001",
    "corrections=[proximal,moon] personal=ditto private=fedper mask=agreement compression=top_k",
    "privacy=central privacy.noise_multiplier=1 weighting=uniform server_optimizer=yogi",
    "central_test=none save=best objective=node-test/accuracy device=cuda:0 early_stopping.patience=3",
    '\'client.private=["fc1.*","last"]\' client.optimizer._target_=torch.optim.Adam',
    "model=lora model.r=4 model.base.width=32 model.weights=null",
]
TARGETS = [  # code that conf/ does not name, in places that are read or not
    "+client.personal={_target_: pandas.read_pickle, filepath_or_buffer: 'http://127.0.0.1:9/x.pkl'}",
    "+client.personal={_target_: torch.load, f: /tmp/x, weights_only: false}",
    "model._target_=torch.hub.load",
    "model={_target_: torch.hub.load, repo_or_dir: a/b, model: c}",
    "mask._target_=os.system",
    "mask._target_=builtins.eval",
    "mask._target_=hydra.utils.instantiate",
    "mask._target_=hydra.utils.call",
    "mask._target_=omegaconf.OmegaConf.load",
    "mask._target_=subprocess.Popen",
    "mask._target_=strategies",
    "mask._target_=strategies.parts.mask.os",
    "mask._target_=''",
    "mask._target_=[os.system]",
    "mask._target_={_target_: os.system}",
    "+mask.tau={_target_: os.system, command: id}",
    "+mask.tau=[[{_target_: os.system}]]",
    "+mask.a={b: {c: [{_target_: os.system}]}}",
    "+client.corrections.x={_target_: importlib.import_module, name: os}",
    "+corrections.x._target_=runpy.run_path",
    "client.optimizer._target_=torch.optim.AdamW",
    "client.optimizer._target_=torch.compile",
    "strategy._target_=flwr.serverapp.strategy.FedAvg",
    "strategy._target_=strategies.fedavg.FedAvg",  # another name of what is allowed is another name
    "partitioner._target_=baselines.partitioners.flower.load",
    f"mask._target_={PAYLOAD}.run",
    f"+client.personal={{_target_: {PAYLOAD}.run}}",
    f"+dataset.load.augment={{_target_: {PAYLOAD}.run}}",
    f"dataset.load._target_={PAYLOAD}.run",
    f"dataset=local dataset.schema={{_target_: {PAYLOAD}.run}}",
    f"dataset=local dataset.schema={{classes: [{{_target_: {PAYLOAD}.run}}]}}",
    "dataset=local dataset.schema={_target_: strategies.FedAvg}",
    "+mask.x={_target_: baselines.datasets.hub, name: /etc}",  # on the list, and not there
    "+mask.x={_target_: baselines.engine.loggers.MLflow, uri: 'sqlite:////tmp/x', experiment: x}",
    "+mask.x={_target_: baselines.runtimes.SuperLink}",
    "+mask.x={_target_: baselines.datasets.TorchvisionImages, source: os.system, root: /, folder: ''}",
    "+client.personal={_target_: clients.Ditto, _args_: [1]}",
    "+client.optimizer._args_=[[1]]",
    "+dataset.load._args_=[{a: 1}]",
    "dataset.load._target_=baselines.datasets.mnist_writers",
    "++dataset.load._target_=baselines.datasets.hub",
    "model=huggingface model.name=/etc",  # files that a model opens
    "model=lora model.weights=/etc/x.safetensors",
    "model=lora +model.base={_target_: baselines.models.HuggingFace, name: /etc}",
    "+mask.x={_target_: baselines.models.HuggingFace, name: /etc}",
]
PLACES = [  # that belong to the owner of a process
    "hydra.searchpath=[pkg://os]",
    "hydra.searchpath=[file:///tmp]",
    f"+hydra.searchpath=[pkg://{PAYLOAD}]",
    "hydra/launcher=joblib",
    "hydra.run.dir=/tmp/x",
    "hydra.callbacks.checks._target_=os.system",
    "runtime=superlink",
    "runtime=ray",
    "runtime.sites={a: /etc}",
    "data_root=/etc",
    "+data_root=/etc",
    "dataset=mnist dataset.load.images.root=/etc",
    "dataset=mnist dataset.load.images.folder=../../etc",
    "dataset=mnist dataset.load.images.source=os.system",
    "dataset=mnist dataset.load.images.sha256={'../../x': y}",
    "dataset=hub dataset.name=/etc",
    "dataset=hub dataset.name=csv dataset.subset=x",
    "dataset=local dataset.load.cache=/etc dataset.schema={classes: [a, b]}",
    "dataset=local dataset.schema=/etc/passwd dataset.load.schema=/etc/shadow",
    "dataset=mnist dataset.load.images.root=7",
    "dataset=mnist dataset.load.images.root=null",
    "dataset=speech dataset.load.folder=/etc",
    "logger=mlflow logger.mlflow.uri=sqlite:////tmp/x.db",
    "logger=wandb logger.wandb.project=/tmp/x",
    "dataset=../../../tmp/x",
    "+experiment=../../../../tmp/x",
    "strategy=/etc/passwd",
    "strategy=base/../fedavg",
    "dataset@model=mnist",
    "+dataset@client.personal=mnist",
]
INTERPOLATIONS = [
    "seed=${oc.env:SEED,1}",
    "objective='test/${oc.env:SECRET,x}'",
    "device=${data_root}",
    "device=${oc.decode:${oc.env:X,cpu}}",
    "client.private=['${oc.env:SECRET,x}']",
    "strategy=${oc.env:SECRET,x}",
    "dataset=local dataset.schema={classes: [a, b], columns: ['${oc.env:SECRET,x}']}",
    "dataset=local dataset.schema={classes: [a, b], columns: ['${data_root}']}",
    r"dataset=local dataset.schema={classes: [a, b], columns: [$\{oc.env:SECRET\,x\}]}",
    "dataset=local dataset.schema='${oc.env:SECRET,x}'",
    "seed=${rounds}",
    "+mask.x='${run_folder:}'",
    "+mask.x='${hydra:runtime.cwd}'",
    '+mask.x="\\\\${oc.env:HOME}"',
    "+mask.x={'${oc.env:HOME}': 1}",
    "+mask.x={a: [{b: '${oc.env:HOME}'}]}",
]
UNREADABLE = ["'", "=", "a=b=c", "seed=1,2", "seed=range(1,3)", "x" * (1 << 21), "\x00=1", "seed"]


@pytest.fixture
def payload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file that a module writes when anything imports it."""
    mark = tmp_path / "harm"
    (tmp_path / f"{PAYLOAD}.py").write_text(f"open({str(mark)!r}, 'w').close()\ndef run(**_): pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, PAYLOAD, raising=False)
    monkeypatch.setenv("SECRET", "hunter2")
    return mark


def quoted(attack: str) -> str:
    """Return one override, or an option and what is set in it, as a submitted string."""
    option, _, rest = attack.partition(" ")
    is_two = rest and "=" in option and not set("{'\"$") & set(option)
    return shlex.join([option, rest]) if is_two else shlex.join([attack]) if "=" in attack[1:] else attack


@pytest.mark.parametrize("overrides", HONEST)
def test_what_anybody_may_ask_for_is_taken(overrides: str) -> None:
    closed.check(overrides)


@pytest.mark.exhaustive
@pytest.mark.parametrize("override", [*TARGETS, *PLACES, *INTERPOLATIONS, *UNREADABLE])
def test_nothing_else_is_taken_and_nothing_is_imported(override: str, payload: Path) -> None:
    modules = set(sys.modules)
    with pytest.raises(UserError) as refusal:
        closed.check(quoted(override))
    assert "hunter2" not in str(refusal.value)
    assert not payload.exists()
    assert not {
        name for name in set(sys.modules) - modules if not name.startswith(("antlr4", "hydra", "omegaconf"))
    }


@pytest.mark.parametrize("override", [TARGETS[0], TARGETS[26], PLACES[0], INTERPOLATIONS[6]])
def test_server_and_node_look_before_they_load(
    override: str, payload: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    become_server()
    monkeypatch.setattr(experiment, "load", lambda _: pytest.fail("it was loaded"))
    monkeypatch.setattr(config, "build", lambda *_, **__: pytest.fail("it was built"))
    context = Context(1, 1, {}, RecordDict(), {"overrides": quoted(override)})
    with pytest.raises(UserError):
        main(object(), context)  # type: ignore[arg-type]
    assert not payload.exists()


def test_an_owner_may_add_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    override = "client.optimizer._target_=torch.optim.AdamW"
    closed.check(override, ["torch.optim.AdamW"])
    monkeypatch.setenv(closed.TARGETS_VARIABLE, "a.b, torch.optim.AdamW")
    closed.check(override)
    with pytest.raises(closed.ClosedError, match=r"client\.optimizer\._target_"):
        closed.check("client.optimizer._target_=torch.optim.NAdam")


NAMES = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        [
            "os.system",
            "torch.load",
            "builtins.exec",
            "strategies.parts",
            "clients.app.client_app",
            "json.loads",
        ]
    ),
    st.from_regex(r"[a-z_]{1,8}(\.[A-Za-z_]{1,8}){0,3}", fullmatch=True),
)
PLACE = st.sampled_from(
    ["mask", "client.personal", "model", "dataset.load", "strategy", "client.optimizer", "x.y"]
)
WRAP = st.sampled_from(["{}", "[{}]", "{{a: {}}}", "{{a: [{{b: {}}}]}}"])


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(name=NAMES, place=PLACE, wrap=WRAP, added=st.booleans(), resolver=st.booleans())
def test_random_targets_and_interpolations_are_refused(
    name: str, place: str, wrap: str, added: bool, resolver: bool
) -> None:
    text = "'" + name.replace("\\", "").replace("'", r"\'") + "'"
    inner: Any = f"${{oc.env:{name}}}" if resolver else f"{{_target_: {text}, x: 1}}"
    override = f"{'+' * added}{place}.z={wrap.format(inner)}"
    if name in closed.known_targets():
        return
    with pytest.raises(UserError):
        closed.check(shlex.join([override]))
