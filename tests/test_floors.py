"""The house stands: imports point down, no circle closes, and the outside world comes in through known doors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = "maka_trio"
ROOT = Path(__file__).parents[1] / PACKAGE

FLOORS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "ground",
        (
            *("exports", "records", "errors", "limits", "facts", "dialect", "secret_options", "request", "steps"),
            *("shares", "tellings", "dialogue", "history", "continuing", "transitions", "recovery"),
            *("lawbook", "ancestry", "conversation_laws", "stub_laws", "laws"),
        ),
    ),
    ("wire", ("protocol",)),
    ("log", ("scopes", "log")),
    ("models", ("models",)),
    ("tools", ("tools", "code")),
    ("engine", ("engine",)),
    ("roof", ("forks", "testing", "cli", "__main__")),
)
"""Floor by floor, lowest first: the modules and packages that live there."""

SANS_IO = {"trio", "httpx", "h11", "sqlite3", "socket", "ssl", "threading", "subprocess", "asyncio", "anyio"}
"""What neither the ground floor nor the wire may know of."""

LOCK = "threading.RLock"
"""All that these know of threads: that some may meet there."""

DOORS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("httpx", ("models.",)),
    ("h11", ()),  # it goes through some lines again and again
    ("sqlite3", ("log.", "cli.log_file.")),
    ("trio._", ("testing.scheduling",)),
)
"""Outside modules that only some of ours may import."""


def module_name(path: Path, root: Path = ROOT) -> str:
    """`facts.event` for `facts/event.py`, `facts` for `facts/__init__.py`, the empty string for the root."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def floor_of(module: str) -> int | None:
    """The number of a module's floor; None for one that no floor lists."""
    top = module.split(".")[0]
    return next((number for number, (_, rooms) in enumerate(FLOORS) if top in rooms), None)


def imported(tree: ast.AST) -> Iterator[tuple[str, str | None]]:
    """Every `import a.b` as `("a.b", None)` and every `from a import b` as `("a", "b")`, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # A relative import would hide from this walk, so it counts as one of the root.
            source = node.module if node.level == 0 and node.module else None
            yield from ((PACKAGE, None) if source is None else (source, alias.name) for alias in node.names)


def own_imports(tree: ast.AST, modules: set[str]) -> set[str]:
    """The modules of the package that a tree imports; the empty string stands for the package root."""
    found = set()
    for source, name in imported(tree):
        if source != PACKAGE and not source.startswith(f"{PACKAGE}."):
            continue
        base = source.removeprefix(PACKAGE).removeprefix(".")
        member = f"{base}.{name}".removeprefix(".") if name else base
        found.add(member if member in modules else base)
    return found


def outside_imports(tree: ast.AST) -> set[str]:
    """The full names of what a tree imports from elsewhere."""
    names = {source if name is None else f"{source}.{name}" for source, name in imported(tree)}
    return {name for name in names if name != PACKAGE and not name.startswith(f"{PACKAGE}.")}


def find_circle(graph: dict[str, set[str]]) -> list[str] | None:
    """A path that comes back to where it began, or None."""
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> list[str] | None:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return None
        for target in sorted(graph.get(module, ())):
            if circle := visit(target, [*path, module]):
                return circle
        done.add(module)
        return None

    return next((circle for module in sorted(graph) if (circle := visit(module, []))), None)


def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(), str(MODULES[module]))


@cache
def imports_of(module: str) -> tuple[set[str], set[str]]:
    """What a module of ours imports: of the package, and of the outside."""
    tree = tree_of(module)
    return own_imports(tree, set(MODULES)), outside_imports(tree)


def test_every_module_has_a_floor() -> None:
    """A new top-level module or package must say where it lives."""
    assert [module for module in MODULES if module and floor_of(module) is None] == []


@pytest.mark.parametrize("module", [module for module in MODULES if module])
def test_imports_point_down_or_stay_on_the_floor(module: str) -> None:
    """A module imports nothing of a floor above, and never the package root. `TYPE_CHECKING` is no exception."""
    floor = floor_of(module)
    assert floor is not None
    upward = {target for target in imports_of(module)[0] if target == "" or (floor_of(target) or 0) > floor}
    assert upward == set()


def test_no_circle_closes() -> None:
    """Importing leads nowhere back, packages' `__init__` included."""
    assert find_circle({module: imports_of(module)[0] for module in MODULES}) is None


@pytest.mark.parametrize("module", [module for module in MODULES if floor_of(module) in (0, 1)])
def test_the_two_lowest_floors_do_no_io(module: str) -> None:
    """Values, rules and decoders are tested without trio because they cannot reach it."""
    assert {name for name in imports_of(module)[1] if name.split(".")[0] in SANS_IO} <= {LOCK}


@pytest.mark.parametrize(("outside", "rooms"), DOORS)
def test_the_outside_comes_in_through_its_door(outside: str, rooms: tuple[str, ...]) -> None:
    """HTTP, SQLite and trio's private names each have one place, so that replacing one is one change."""
    users = {
        module
        for module in MODULES
        if any(
            f"{name}.".startswith(outside if outside.endswith("_") else f"{outside}.") for name in imports_of(module)[1]
        )
    }
    assert {user for user in users if not f"{user}.".startswith(rooms)} == set()


@pytest.mark.parametrize("package", [module for module, path in MODULES.items() if path.name == "__init__.py"])
def test_packages_only_re_export(package: str) -> None:
    """An `__init__` holds a docstring, imports and `__all__`; or imports for type checkers and a table for run time."""
    for node in tree_of(package).body:
        if isinstance(node, ast.If):
            assert ast.unparse(node.test) == "TYPE_CHECKING"
            assert all(isinstance(stated, ast.ImportFrom) for stated in node.body)
            (table,) = node.orelse
            assert ast.unparse(table).startswith("__getattr__, __dir__, __all__ = _exports(__name__, {")
            continue
        named = isinstance(node, (ast.Assign, ast.AnnAssign)) and ast.unparse(node).startswith(
            ("__all__", "__version__")
        )
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        assert named or docstring or isinstance(node, (ast.Import, ast.ImportFrom)), ast.unparse(node)


# --- the walk itself finds what it looks for -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import maka_trio", {""}),
        ("from maka_trio import Engine", {""}),
        ("from maka_trio import limits", {"limits"}),
        ("from maka_trio.facts import event", {"facts.event"}),
        ("from maka_trio.facts import Fact", {"facts"}),
        ("import maka_trio.facts.event", {"facts.event"}),
        ("from . import limits", {""}),
        ("from .facts import event", {""}),
        ("if TYPE_CHECKING:\n    from maka_trio.facts.event import Fact", {"facts.event"}),
        ("def f():\n    from maka_trio.limits import MIB", {"limits"}),
        ("import maka_trio_other", set()),
    ],
)
def test_every_form_of_import_is_seen(source: str, expected: set[str]) -> None:
    """Absolute, from, nested and type-checking imports count alike."""
    assert own_imports(ast.parse(source), {"", "limits", "facts", "facts.event"}) == expected


def test_a_circle_is_found_and_named() -> None:
    """The walk would notice one."""
    assert find_circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == ["a", "b", "c", "a"]
    assert find_circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None
