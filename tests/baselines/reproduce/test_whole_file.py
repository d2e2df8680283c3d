"""A page that cannot be written, or is being written by another process, stays whole."""

import resource
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest
from filelock import FileLock

from baselines.engine.run_folder import LOCK
from baselines.reproduce import report
from baselines.reproduce.claims import page_claims
from baselines.reproduce.page import replace_marked, write_pages
from baselines.reproduce.plan import table_of

LIMIT = 2_000  # bytes that fit the disk
PROSE = "written by hand\n" * LIMIT
MARKS = "<!-- claims: generated -->\nold\n<!-- end -->\n"


@pytest.mark.parametrize(
    ("name", "text", "renew"),
    [
        ("README.md", MARKS + PROSE, lambda page: replace_marked(page, "new")),
        ("table1.md", PROSE, lambda page: report.write(table_of("tiny", "table1"), {}, page.parent)),
    ],
)
def test_a_full_disk_leaves_the_old_page(
    name: str,
    text: str,
    renew: Callable[[Path], object],
    papers: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(report, "EXPLAINED", PROSE)
    folder = tmp_path / "pages"
    folder.mkdir()
    page = folder / name
    page.write_text(text)
    with pytest.raises(OSError, match=name):
        _on_a_full_disk(renew, page)
    assert page.read_text() == text
    assert list(folder.iterdir()) == [page]
    renew(page)
    assert page.read_text() != text
    assert list(folder.iterdir()) == [page]


def _on_a_full_disk(renew: Callable[[Path], object], page: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, limits[1]))
    try:
        renew(page)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


def test_pages_are_renewed_by_one_process_at_a_time(papers: Path) -> None:
    """What another one wrote meanwhile is read, not overwritten."""
    page = papers / "tiny" / "README.md"
    page.write_text("# Tiny\n")
    with FileLock(papers / LOCK):
        renewing = Thread(target=write_pages, args=[["tiny"]])
        renewing.start()
        renewing.join(0.5)
        assert renewing.is_alive()
        page.write_text(f"# Tiny\n{MARKS}")
    renewing.join(30)
    assert page.read_text() == f"# Tiny\n{MARKS.replace('old', page_claims('tiny'))}"
