"""Runs with compression, from the command line to metrics.csv."""

from pathlib import Path

import pytest

from helpers.runs import curve, launch, lines_in, metrics_in, played

SMALL = "dataset=digits partitioner=iid num_nodes=4 client.optimizer.lr=0.1 seed=2"
NPY = 128  # bytes before an array's values


@pytest.mark.slow
@pytest.mark.parametrize(
    "whole",
    [
        "sketch compression.bits=null",
        "sketch compression.bits=null compression.error_feedback=true",
        "random_mask compression.share=1",
        "top_k compression.share=1",
        "low_rank compression.share=1",
    ],
)
def test_all_places_as_they_are_is_the_run_itself(whole: str, tmp_path: Path) -> None:
    adam = "strategy=fedadam mask=agreement rounds=3"
    played(f"{SMALL} {adam}", tmp_path / "plain")
    played(f"{SMALL} {adam} compression={whole}", tmp_path / "coded")
    assert lines_in(tmp_path / "coded") == lines_in(tmp_path / "plain")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("compression", "least"),
    [
        ("sketch compression.bits=8", 0.9),
        ("sketch compression.share=0.25 compression.bits=8", 0.85),
        ("sketch compression.bits=2 compression.rotate=true", 0.9),
        ("random_mask", 0.85),
        ("low_rank", 0.85),
        ("top_k", 0.8),
        ("scaled_sign", 0.85),
    ],
)
def test_it_learns(compression: str, least: float, tmp_path: Path) -> None:
    rows = played(f"{SMALL} rounds=12 compression={compression}", tmp_path)
    accuracy = curve(rows, "test", "accuracy")
    assert accuracy[0] < 0.2
    assert accuracy[-1] > least


@pytest.mark.slow
def test_error_feedback_brings_what_was_left_out(tmp_path: Path) -> None:
    """Without it, one place in a hundred learns less."""
    actual = [
        curve(
            played(
                f"{SMALL} rounds=12 compression=top_k compression.error_feedback={feedback}",
                tmp_path / feedback,
            ),
            "test",
            "loss",
        )[-1]
        for feedback in ("true", "false")
    ]
    assert actual[0] < 0.8 * actual[1]


@pytest.mark.slow
def test_bytes_are_those_of_the_codes(tmp_path: Path) -> None:
    """Of an array of n numbers: the header of Flower's array, a seed, two limits, half a byte a place."""
    rows = played(
        f"{SMALL} rounds=1 model=softmax count_bytes=true compression=sketch compression.share=0.25 "
        "compression.bits=4",
        tmp_path / "coded",
    )
    plain = played(f"{SMALL} rounds=1 model=softmax count_bytes=true", tmp_path / "plain")
    code = sum(NPY + 8 + 8 + half_bytes for half_bytes in (80, 2))  # of 160 places of 640, and 3 of 10
    whole = sum(NPY + 4 * n for n in (640, 10))
    up = [curve(metrics, "site-train", "bytes_up") for metrics in (rows, plain)]
    assert len(up[0]) == 4
    assert up[1][0] - up[0][0] == whole - code  # the metrics are the same
    down = [curve(metrics, "train", "bytes_down")[0] for metrics in (rows, plain)]
    assert 0 <= down[0] - down[1] < 1000


@pytest.mark.slow
def test_zlib_finds_little_in_a_code(tmp_path: Path) -> None:
    wanted = "count_bytes=compressed compression=sketch compression.share=0.1 compression.bits=2"
    coded = played(f"{SMALL} rounds=1 {wanted}", tmp_path / "coded")
    plain = played(f"{SMALL} rounds=1 count_bytes=compressed", tmp_path / "plain")
    up = [curve(metrics, "train", "bytes_up")[0] for metrics in (coded, plain)]
    assert up[0] < up[1] / 20


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["top_k", "scaled_sign strategy=scaffold", "low_rank"])
def test_a_resumed_run_is_one_in_one_go(compression: str, tmp_path: Path) -> None:
    words = [*f"{SMALL} compression={compression} checkpoint_every=1 nodes_per_round=2".split()]
    assert launch(*words, "rounds=4", f"hydra.run.dir={tmp_path / 'whole'}") == 0
    for rounds in ("rounds=2", "rounds=4"):
        assert launch(*words, rounds, "resume=true", f"hydra.run.dir={tmp_path / 'parts'}") == 0
    assert lines_in(tmp_path / "parts") == lines_in(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize(
    "compression", ["top_k", "random_mask", "low_rank", "sketch compression.rotate=true"]
)
def test_batched_nodes_compress_alike(compression: str, tmp_path: Path) -> None:
    losses = []
    for batched in ("false", "true"):
        words = f"{SMALL} model=softmax rounds=2 compression={compression} runtime.batch_clients={batched}"
        assert launch(*words.split(), f"hydra.run.dir={tmp_path / batched}") == 0
        losses.append(curve(metrics_in(tmp_path / batched), "test", "loss"))
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert losses[0][0] != losses[0][-1]


@pytest.mark.slow
def test_local_privacy_costs_what_it_costs(tmp_path: Path) -> None:
    private = "model=softmax weighting=uniform privacy=local privacy.clip=3 privacy.noise_multiplier=0.05"
    plain = played(f"{SMALL} rounds=2 {private}", tmp_path / "plain")
    coded = played(f"{SMALL} rounds=2 {private} compression=top_k", tmp_path / "coded")
    assert curve(coded, "train", "epsilon") == curve(plain, "train", "epsilon")
    assert curve(coded, "test", "loss")[1:] != curve(plain, "test", "loss")[1:]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("compression=top_k compression.bits=1", "compression=scaled_sign"),
        ("compression=sketch compression.share=0", "compression.share=0 is out of range"),
        ("compression=sketch compression.bits=many", "compression.bits"),
        ("compression=random_mask compression.rotate=true", "set compression.bits to 1 to 16"),
        ("compression=top_k runtime=superlink checkpoint_every=1", "checkpoint_every"),
    ],
)
def test_a_mistake_is_one_line(
    overrides: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch(*SMALL.split(), *overrides.split(), f"hydra.run.dir={tmp_path}") == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


@pytest.mark.slow
def test_a_stock_strategy_cannot_read_codes_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "options" / "strategy"
    folder.mkdir(parents=True)
    (folder / "stock.yaml").write_text("_target_: flwr.serverapp.strategy.FedAvg\n")
    words = f"{SMALL} strategy=stock compression=sketch hydra.run.dir={tmp_path / 'run'}"
    assert launch("--config-dir", str(tmp_path / "options"), *words.split()) == 2
    assert "compression does not reach FedAvg, which is not a strategy of this suite: leave it out" in (
        capsys.readouterr().err
    )
