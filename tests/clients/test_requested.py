"""Which corrections a message asks a node for, and in which order they act."""

import subprocess
import sys

import pytest

from clients.round import BUILT_IN, requested_corrections
from helpers.checkout import ROOT

KEYS = (
    *("control-option", "communication-probability", "gradient-variance", "proximal-mu"),
    *("dynamic-alpha", "client-momentum", "mime-share", "effective-steps", "start-loss"),
    *("prototypes", "num-models"),
    "squared-loss",
)


def test_they_act_in_one_order_whatever_the_message_s() -> None:
    """SCAFFOLD's comes before the variance, which is observed of corrected gradients."""
    assert tuple(kind.config_key for kind in BUILT_IN) == KEYS
    config: dict[str, object] = dict.fromkeys(reversed(KEYS), 1.0)
    assert requested_corrections(config) == list(BUILT_IN)


def test_a_key_that_is_absent_or_0_asks_for_nothing() -> None:
    assert requested_corrections({"proximal-mu": 0.0, "server-round": 1, "": True}) == []


@pytest.mark.slow
def test_the_order_does_not_depend_on_what_is_imported_first() -> None:
    script = "import clients.methods.fedprox; from clients.round import BUILT_IN; print(BUILT_IN[0])"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "<class 'clients.methods.scaffold.ControlVariate'>\n"
