"""A run from Python: objects in the place of YAML files."""

from functools import partial

from baselines import results
from baselines.api import run
from mylab.network import Network
from mylab.strategy import FedWarm

if __name__ == "__main__":
    frame = run(
        "dataset=digits rounds=20", strategy=FedWarm(), model=partial(Network, hidden=32), seeds=[0, 1, 2]
    )
    print(results.last(frame, "accuracy")[["seed", "value"]])
