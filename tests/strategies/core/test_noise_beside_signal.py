"""Central privacy says in its first round what the noise does to the signal."""

import logging

import pytest
import torch

from strategies import AdaptivePrivacy, CentralPrivacy, LocalPrivacy, NoPrivacy
from strategies.core.client_registry import ContributionLog
from strategies.parts.privacy import Privacy, PrivacyAccountant

PARTS = [
    (CentralPrivacy(clip=1.0, noise_multiplier=2.0, noise_seed=0), {}, "5 to a mean update of norm 1:"),
    (CentralPrivacy(clip=0.1, noise_multiplier=0.2, noise_seed=0), {}, "0.05 to a mean update of norm 1"),
    # z_Delta = (1 / 4 - 1 / 9)^(-1/2) = 2.683...
    (
        AdaptivePrivacy(clip=9.0, noise_multiplier=2.0, count_noise=1.5, noise_seed=0),
        {"used": 1.0},
        "6.71 to a mean update of norm 1:",
    ),
]


@pytest.mark.parametrize(("part", "state", "message"), PARTS)
def test_the_first_round_has_a_line(
    part: Privacy, state: dict[str, float], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of 100 parameters and four nodes the noise has an expected norm of 10 z C / 4."""
    budget = PrivacyAccountant(part, ContributionLog(), dict(state))
    with caplog.at_level(logging.INFO, "flwr.strategies"):
        for server_round in (1, 2):
            budget.noise_(torch.eye(1, 100)[0], 4, server_round)
    (line,) = caplog.messages
    assert line.startswith("round 1: privacy adds noise of an expected norm of ")
    assert message in line
    assert ("mostly noise" in line) == message.endswith(":")


@pytest.mark.parametrize("part", [NoPrivacy(), LocalPrivacy(clip=1.0, noise_multiplier=1.0)])
def test_where_the_server_adds_none_nothing_is_said(
    part: Privacy, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "flwr.strategies"):
        PrivacyAccountant(part, ContributionLog()).noise_(torch.ones(3), 4, 1)
    assert not caplog.messages
