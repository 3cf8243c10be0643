"""What a package exports, imported when it is asked for: a program pays for what it uses.

A package states its names twice, once for type checkers as ordinary imports and once as a table for run time, and a
test says that the two agree. Knows nothing of what is behind the names.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

Exports: TypeAlias = tuple[Callable[[str], object], Callable[[], list[str]], list[str]]


def exports(package: str, homes: Mapping[str, Iterable[str]], modules: Iterable[str] = ()) -> Exports:
    """The package's `__getattr__`, `__dir__` and `__all__`.

    Args:
        package: its name.
        homes: by the module that a name comes from, given from this library's root, the names.
        modules: modules of the package that it exports as they are.
    """
    home_of = {name: f"maka_trio.{home}" for home, names in homes.items() for name in names}
    parts = frozenset(modules)
    public = [*modules, *home_of]

    def get(name: str) -> object:
        if name in parts:
            return importlib.import_module(f"{package}.{name}")
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(home_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*public, *(name for name in vars(sys.modules[package]) if name.startswith("__"))})

    return get, names, public
