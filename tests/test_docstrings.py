"""Every public name of the package has a docstring that defines it."""

import ast
import pathlib

import pytest

PACKAGE = pathlib.Path(__file__).parents[1] / "agents"
FILES = sorted(PACKAGE.rglob("*.py"))


def docstrings(tree):
    """First words of all docstrings and field docstrings, with their lines."""
    return [
        (node.lineno, node.value.value.split()[:1])
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]


def public(tree):
    """Public classes and functions by qualified name, also inside of classes."""
    found, waiting = {}, [("", tree)]
    while waiting:
        prefix, parent = waiting.pop()
        for node in parent.body:
            definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
            if isinstance(node, definition) and not node.name.startswith("_"):
                name = f"{prefix}{node.name}"
                found[name] = node
                if isinstance(node, ast.ClassDef):
                    waiting.append((f"{name}.", node))
    return found


def is_setter(node):
    """Whether a function is the setter of a property, whose getter has the text."""
    return any(ast.unparse(x).endswith(".setter") for x in node.decorator_list)


def described(trees):
    """Names of base classes and of methods with docstring, by the name of the class."""
    found = {}
    for node in (x for tree in trees for x in ast.walk(tree)):
        if isinstance(node, ast.ClassDef):
            functions = [x for x in node.body if isinstance(x, ast.FunctionDef)]
            names = {x.name for x in functions if ast.get_docstring(x)}
            found.setdefault(node.name, []).append((bases_of(node), names))
    return found


def bases_of(node):
    """Names of the base classes of a class, without their modules."""
    return {ast.unparse(base).rpartition(".")[2] for base in node.bases}


def inherits(classes, bases, name):
    """Whether a base class describes a method, or is of another package."""
    seen, waiting = set(), set(bases)
    while waiting:
        base = waiting.pop()
        seen.add(base)
        for parents, names in classes.get(base, [((), {name})]):
            if name in names:
                return True
            waiting |= set(parents) - seen
    return False


def missing(tree, classes):
    """Names without docstring, except for methods that inherit one."""
    found = [] if ast.get_docstring(tree) else ["module"]
    names = public(tree)
    for name, node in names.items():
        owner, _, short = name.rpartition(".")
        bases = bases_of(names[owner]) if owner else ()
        if not (
            ast.get_docstring(node)
            or is_setter(node)
            or inherits(classes, bases, short)
        ):
            found.append(name)
    return found


def vague(tree):
    """Lines of docstrings that begin with a free relative instead of a noun."""
    relatives = {"What", "How", "Whether", "Who", "Of", "Those"}
    return [line for line, words in docstrings(tree) if relatives & set(words)]


def test_docstrings_define_their_subject():
    assert len(FILES) > 100
    found = {str(x): vague(ast.parse(x.read_text())) for x in FILES}
    assert {file: lines for file, lines in found.items() if lines} == {}


def test_public_names_have_docstrings():
    trees = {str(x): ast.parse(x.read_text()) for x in FILES}
    classes = described(trees.values())
    found = {file: missing(tree, classes) for file, tree in trees.items()}
    assert {file: names for file, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def f():\n    pass", ["module", "f"]),
        ("'Text.'\nclass A:\n    def f(self):\n        pass", ["A", "A.f"]),
        ("'Text.'\nclass A(Foreign):\n    'Text.'\n    def f(self): pass", []),
        ("'Text.'\nclass A(B):\n    'Text.'\n    def f(self): pass", []),
        ("'Text.'\nclass A(B):\n    'Text.'\n    def g(self): pass", ["A.g"]),
        ("'Text.'\ndef _f():\n    pass", []),
    ],
)
def test_missing_docstrings_are_found(source, names):
    classes = described([ast.parse("class B:\n    def f(self):\n        'Text.'")])
    assert missing(ast.parse(source), classes) == names


def test_vague_docstrings_are_found():
    assert vague(ast.parse("'''Text.'''\nx = 1\n'''What x is.'''")) == [3]
