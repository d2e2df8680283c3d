"""What every page has: its style, and tables that sort. Nothing is fetched from elsewhere."""

from html import escape
from importlib.resources import files
from string import Template


def whole(title: str, body: str) -> str:
    """Return a page, as HTML, around its body."""
    template = Template(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(title=escape(title), body=body)
