"""Every mutant there is of a file: one operator, condition or number changed, by Cosmic Ray's operators.

Left alone: the heads of functions, defaults of dataclass fields, annotations, decorators, docstrings, and
what only says or asserts something (errors that are raised, assertions, ``zip``'s ``strict``, log lines,
the words of ``require``).
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.provider import OperatorProvider

BOUNDS = ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt")
OPPOSITES = ("Lt_GtE", "LtE_Gt", "Gt_LtE", "GtE_Lt", "Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is")
# The nearest other operation: a product turned into a bit shift dies of its type alone, and tells nothing.
ARITHMETIC = ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Div", "Mod_Mul", "Pow_Mul")
BITS = ("BitAnd_BitOr", "BitOr_BitAnd", "LShift_RShift")
OPERATORS = (
    *(f"ReplaceComparisonOperator_{kind}" for kind in (*BOUNDS, *OPPOSITES)),
    *(f"ReplaceBinaryOperator_{kind}" for kind in (*ARITHMETIC, *BITS)),
    "ReplaceUnaryOperator_Delete_USub",
    "ReplaceUnaryOperator_Delete_Not",
    "AddNot",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "NumberReplacer",
)
Place = tuple[int, int]  # line from 1, column from 0


@dataclass(frozen=True)
class Change:
    """One application of an operator to a file, at the n-th of the places where it fits."""

    root: Path
    file: str
    operator: str
    occurrence: int
    place: Place


@dataclass(frozen=True)
class Mutant:
    """One change of one file, made.

    Parameters
    ----------
    file : its path from the root, with slashes
    lines : the first and the last line of the statement that is changed, by which its tests are found
    number : of the changed line
    before, after : that line, with single spaces
    source : the whole changed file
    """

    file: str
    lines: tuple[int, int]
    number: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        return f"{self.file}:{self.number}\n    - {self.before}\n    + {self.after}"


def changes(root: Path, file: str) -> Iterator[Change]:
    """Yield every change of a file, operator by operator."""
    source = (root / file).read_text(encoding="utf-8")
    left_alone = list(_left_alone(ast.parse(source)))
    nodes = list(ast_nodes(get_ast(source)))
    for name in OPERATORS:
        operator = OperatorProvider()[name]()
        places = [place for node in nodes for place, _ in operator.mutation_positions(node)]
        for occurrence, place in enumerate(places):
            if not any(start <= place < end for start, end in left_alone):
                yield Change(root, file, name, occurrence, place)


def made(change: Change) -> Mutant | None:
    """Return the mutant; None where it is no other program, such as 1e30 + 1, or none at all."""
    source = (change.root / change.file).read_text(encoding="utf-8")
    tree = ast.parse(source)
    if change.operator == "AddNot" and change.place in _turned_by_others(tree):
        return None
    changed = mutate_code(source, OperatorProvider()[change.operator](), change.occurrence)
    try:
        if ast.dump(ast.parse(changed)) == ast.dump(tree):
            return None
    except SyntaxError:  # ** before a dictionary is taken for a power
        return None
    pairs = zip_longest(source.splitlines(), changed.splitlines(), fillvalue="")
    number, lines = next((k, pair) for k, pair in enumerate(pairs, 1) if pair[0] != pair[1])
    before, after = (" ".join(line.split()) for line in lines)
    return Mutant(change.file, _statement(tree, change.place[0]), number, before, after, changed)


def _left_alone(tree: ast.Module) -> Iterator[tuple[Place, Place]]:
    for node in ast.walk(tree):
        spared: list[ast.AST | None] = []
        match node:
            case ast.FunctionDef():
                spared = list(node.decorator_list)
                first = node.body[0]
                yield (node.lineno, node.col_offset), (first.lineno, first.col_offset)  # what it takes
            case ast.ClassDef():
                defaults = [each.value for each in node.body if isinstance(each, ast.AnnAssign)]
                spared = [*node.decorator_list, *defaults]
            case ast.arg() | ast.AnnAssign():
                spared = [node.annotation]
            case ast.Raise() | ast.Assert() | ast.JoinedStr():
                spared = [node]
            case ast.Call(func=ast.Attribute(value=ast.Name("logger"))):
                spared = [node]
            case ast.Call(func=ast.Name("require" | "require_count" | "isinstance")):
                spared = [*node.args[1:], *node.keywords]
            case ast.Call(func=ast.Name("zip")):
                spared = [*node.keywords]
        for each in spared:
            if each is not None:
                yield (each.lineno, each.col_offset), (each.end_lineno, each.end_col_offset)


def _turned_by_others(tree: ast.Module) -> set[Place]:
    """Return where conditions begin whose opposite another operator makes."""
    tests = [node.test for node in ast.walk(tree) if isinstance(node, ast.If | ast.IfExp | ast.While)]
    return {
        (test.lineno, test.col_offset)
        for test in tests
        if isinstance(test, ast.Compare) or (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not))
    }


def _statement(tree: ast.Module, line: int) -> tuple[int, int]:
    """Return the lines of the innermost statement there; of a compound one its head."""
    lines = (line, line)
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.lineno <= line <= node.end_lineno:
            body = getattr(node, "body", None)
            lines = node.lineno, max(node.lineno, body[0].lineno - 1) if body else node.end_lineno
    return lines
