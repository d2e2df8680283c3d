"""Draws docs/development/round.svg from the steps in architecture.md: ``python docs/site/picture.py``."""

import re
from pathlib import Path
from xml.sax.saxutils import escape

DOCS = Path(__file__).resolve().parents[1] / "development"
ROW = re.compile(r"^\| (\d+) \| (\w+) \| `([^`]+)` \| (.+) \|$", re.MULTILINE)
LEFT = {
    "server": 20,
    "between": 260,
    "node": 500,
}  # of a box, by where its step is taken
COLOUR = {
    "server": "#0072B2",
    "between": "#7f7f7f",
    "node": "#D55E00",
}  # Okabe and Ito's, which all can tell apart
WIDTH, HEIGHT, GAP, TOP = 440, 46, 18, 44


def steps(page: str) -> list[tuple[str, str, str, str]]:
    """Return (number, where, file, what happens) of each step of the page's round."""
    table = page.split("<!-- round -->")[1].split("<!-- /round -->")[0]
    return ROW.findall(table)


def draw(page: str) -> str:
    """Return the picture of a page's round."""
    rows = steps(page)
    height = TOP + len(rows) * (HEIGHT + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 {height}" width="960" height="{height}" '
        'role="img" aria-label="One round of FedAvg, file by file">',
        "<style>text{font-family:sans-serif;font-size:13px;fill:#1a1a1a}.file{font-family:monospace;font-weight:bold}"
        ".head{font-size:15px;font-weight:bold}</style>",
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="6" refY="3" orient="auto">'
        '<path d="M0,0 L6,3 L0,6 z" fill="#555"/></marker></defs>',
        f'<rect width="960" height="{height}" fill="#ffffff"/>',
        '<text class="head" x="20" y="26">server</text>',
        '<text class="head" x="480" y="26" text-anchor="middle">between them</text>',
        '<text class="head" x="940" y="26" text-anchor="end">node</text>',
    ]
    for index, (number, where, file, text) in enumerate(rows):
        x, y = LEFT[where], TOP + index * (HEIGHT + GAP)
        parts += [
            f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5" fill="#ffffff" '
            f'stroke="{COLOUR[where]}" stroke-width="2"/>',
            f'<text class="file" x="{x + 12}" y="{y + 19}">{number}. {escape(file)}</text>',
            f'<text x="{x + 12}" y="{y + 37}">{escape(text.replace("`", ""))}</text>',
        ]
        if index + 1 < len(rows):
            start, end = x + WIDTH / 2, LEFT[rows[index + 1][1]] + WIDTH / 2
            below = y + HEIGHT
            parts.append(
                f'<path d="M{start:g},{below} L{end:g},{below + GAP - 2}" stroke="#555" fill="none" '
                'marker-end="url(#tip)"/>'
            )
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    (DOCS / "round.svg").write_text(
        draw((DOCS / "architecture.md").read_text(encoding="utf-8")),
        encoding="utf-8",
    )
