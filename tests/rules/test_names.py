"""One name is one thing: no class bears the name of another one."""

import ast
from collections import defaultdict

from helpers.source import FILES, name_of


def test_no_class_name_stands_twice() -> None:
    places = defaultdict(list)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name_of(path))
    assert len(places) > 200  # they are read
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
