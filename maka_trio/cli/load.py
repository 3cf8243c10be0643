"""A function of the user's, by name: `package.module:function`, or `folder/file.py:function`."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from maka_trio.cli.usage import UsageError


def load(name: str, *, beside: str | None = None) -> Any:
    """Import a module and return an async function of it.

    Args:
        name: the module or file, a colon, and the function.
        beside: such a name, whose module it is where `name` is a function alone.

    Raises:
        UsageError: there is none. Errors of the module itself pass through.
    """
    module_name, _, attribute = name.rpartition(":")
    if not module_name and beside is not None:
        module_name = beside.rpartition(":")[0]
    if not module_name or not attribute:
        raise UsageError(f"{name!r} is no MODULE:FUNCTION")
    module = _import(module_name)
    found = getattr(module, attribute, None)
    if not inspect.iscoroutinefunction(found):
        what = "has none of that name" if found is None else f"has a {type(found).__name__} of that name"
        raise UsageError(f"{name!r} is no async function: {module_name} {what}")
    return found


def _import(name: str) -> ModuleType:
    if name.endswith(".py"):
        path = Path(name)
        if not path.is_file():
            raise UsageError(f"{name!r} is no file")
        folder, name = str(path.resolve().parent), path.stem
    else:
        folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # something that the module itself imports
        raise UsageError(f"there is no module {error.name!r}") from None
