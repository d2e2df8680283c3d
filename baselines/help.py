"""Show what a command says of itself; light, so that ``--help`` answers at once."""

from argparse import HelpFormatter


class HelpParagraphs(HelpFormatter):
    """Fill a description's paragraphs to the terminal's width; leave indented ones, which are commands."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.strip().split("\n\n")
        return "\n\n".join(
            p if p.startswith(" ") else super(HelpParagraphs, self)._fill_text(p, width, indent)
            for p in paragraphs
        )
