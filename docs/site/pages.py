"""MkDocs' hooks: pages that are read in the repository too, their links, and what the copy button copies.

The front page, the guide for contributors and the papers' pages with their tables and figures lie outside
docs/. A link to a file that is no page leads to the repository (``repo_url``), or becomes the file's path.
"""

import html
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
PLACES = (  # in the repository, and on the site
    (re.compile(r"README\.md"), "index.md"),
    (re.compile(r"CONTRIBUTING\.md"), "contributing.md"),
    (re.compile(r"docs/(.+)"), r"\1"),
    (re.compile(r"baselines/papers/(\w+)/README\.md"), r"papers/\1/index.md"),
    (re.compile(r"baselines/papers/(\w+/ours/\w+\.(?:md|png))"), r"papers/\1"),
)
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")
PICTURE = re.compile(r'\b(src|srcset)="(?!https?:)([^"\s]+)"')


def place(path: Path) -> str | None:
    """Return where a file of the repository lies on the site; None for one that is not there."""
    if not path.is_relative_to(ROOT):
        return None
    name = path.relative_to(ROOT).as_posix()
    uris = (
        pattern.sub(uri, name)
        for pattern, uri in PLACES
        if pattern.fullmatch(name)
    )
    return next(uris, None)


def on_files(files: Any, config: Any) -> Any:
    """Add what lies outside docs/."""
    papers = ROOT / "baselines" / "papers"
    outside = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *papers.glob("*/README.md"),
    ]
    for path in [
        *outside,
        *papers.glob("*/ours/*.md"),
        *papers.glob("*/ours/*.png"),
    ]:
        uri = place(path)
        assert uri is not None
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Let links lead to where pages are."""
    source = Path(page.file.abs_src_path)

    def changed(match: re.Match[str]) -> str:
        image, text, target = match.groups()
        path, _, anchor = target.partition("#")
        target_path = (source.parent / path).resolve()
        uri = place(target_path)
        if uri is None or not target_path.is_file():
            return source_link(text, target_path, config.repo_url)
        link = os.path.relpath(uri, Path(page.file.src_uri).parent)
        return f"{image}[{text}]({link}{'#' * bool(anchor)}{anchor})"

    page_folder = Path(page.file.dest_uri).parent  # HTML is not moved by MkDocs

    def placed(match: re.Match[str]) -> str:
        uri = place((source.parent / match[2]).resolve())
        return f'{match[1]}="{os.path.relpath(uri or match[2], page_folder)}"'

    return PICTURE.sub(placed, LINK.sub(changed, markdown))


def source_link(text: str, path: Path, repo_url: str | None) -> str:
    """Return a link to a file of the repository; without an address its text, and its path once."""
    name = os.path.relpath(path, ROOT)
    if repo_url:
        kind = "tree" if path.is_dir() else "blob"
        return f"[{text}]({repo_url.rstrip('/')}/{kind}/main/{name})"
    is_its_name = text.strip("`/") in (name, path.name)
    return f"`{name}`" if is_its_name else f"{text} (`{name}`)"


BLOCK = re.compile(r'<div class="highlight">(.*?)</div>', re.DOTALL)
PROMPT = re.compile(r'<span class="gp">[^<]*</span>')
TAG = re.compile(r"<[^>]+>")


def on_page_content(content: str, **_: Any) -> str:
    """State what the copy button copies of a console block: the commands, without their prompts."""

    def with_commands(match: re.Match[str]) -> str:
        if not PROMPT.search(match[1]):
            return match[0]
        commands = html.unescape(TAG.sub("", PROMPT.sub("", match[1]))).strip()
        return match[0].replace(
            "<div ", f'<div data-copy="{html.escape(commands)}" ', 1
        )

    return BLOCK.sub(with_commands, content)
