"""Pictures without pixels, in every test of this folder."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from baselines.reports import curves


@pytest.fixture(autouse=True)
def empty_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run draw its picture, but leave the file empty: the pixels take half of a small run's time.

    What a fixture of a wider scope runs (test_results), and a process of its own, has its pixels.
    """
    draw_run = curves.draw_run

    def drawn(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Figure, "savefig", lambda figure, target, **_: Path(target).touch())
            draw_run(folder)

    monkeypatch.setattr(curves, "draw_run", drawn)
