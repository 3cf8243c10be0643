"""`--tools MODULE:NAME`: the tools of a user's own module, for a turn on the command line."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from maka_trio.cli.usage import UsageError
from maka_trio.tools.catalog import ToolCatalog, ToolRegistration


def load_tools(place: str | None) -> ToolCatalog:
    """The catalog at `MODULE:NAME`, modules of the working directory included; an empty one for None.

    Raises:
        UsageError: there is no such module or name, or what it names are no tools.
        InvalidInput: the tools do not make a catalog.
    """
    if place is None:
        return ToolCatalog([])
    module_name, colon, name = place.partition(":")
    if not (module_name and colon and name):
        raise UsageError(f"--tools takes MODULE:NAME, not {place!r}")
    found = _attribute(module_name, name)
    if isinstance(found, ToolCatalog):
        return found
    if isinstance(found, ToolRegistration):
        return ToolCatalog([found])
    if not isinstance(found, (list, tuple)):
        raise UsageError(f"--tools {place}: neither a ToolCatalog nor tools, but {type(found).__name__}")
    return ToolCatalog(found)


def _attribute(module_name: str, name: str) -> object:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: object = getattr(importlib.import_module(module_name), name)
    except Exception as error:  # a user's module may raise anything
        raise UsageError(f"--tools {module_name}:{name}: {type(error).__name__}: {error}") from error
    return found
