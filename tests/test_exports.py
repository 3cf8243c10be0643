"""The public names are exactly these: adding one is a decision, losing one breaks somebody."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import maka_trio
from maka_trio import errors, facts

PUBLIC = {
    "AnthropicOptions", "ApiKey", "CellLimits", "ChatOptions", "CodeExecutor", "ContinuationCheck",
    "ContinuationWork", "Dialect", "Engine", "EventLog",
    "Invocation", "InvocationConfiguration", "Message", "MessageWork", "ModelExecutor", "ModelRequest", "ModelStream",
    "ProviderConfig", "ProviderKind", "RequestHeaders", "ResponsesOptions", "RetryPolicy", "RunBoundary", "RunInput",
    "RunningInvocation", "StepBuilder", "ToolCall", "ToolCatalog", "ToolDefinition", "ToolMode", "ToolNesting",
    "ToolRegistration", "ToolSemantics", "tool",
}  # fmt: skip
MODULES = {"errors", "facts", "laws", "limits", "testing"}
ERRORS = {
    "AdapterError", "Busy", "CleanupUnconfirmed", "CommitError", "CommitRejected", "CommitUnknown", "ContextOverflow",
    "EngineClosed", "InvalidInput", "LogClosed", "LogCorrupt", "LogFull", "LogInUse", "LogTooNew", "LogUnsupported",
    "MakaError", "ModelError", "ModelIncomplete", "ModelRefused", "ModelTimedOut", "PrefixTooLarge", "ProviderFailure",
    "ReconciliationRequired", "ResultUnavailable", "RunCancelled", "RunError", "SessionDeleted", "SessionRetired",
    "StepLimit", "StoreError", "ToolError", "ToolFailed", "ToolOutcomeUnknown",
}  # fmt: skip
FACTS = {
    "InvocationOpened", "ModelRequested", "ModelObserved", "ModelInterrupted", "ModelCompleted", "ToolDispatched",
    "ToolSettled", "ToolRejected", "ToolNotified", "MessageSteered", "ContextCheckpointRecorded",
    "ToolResultArchived", "InvocationEnded",
}  # fmt: skip


def names_of(module: types.ModuleType) -> set[str]:
    values = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    return {name for name, value in values.items() if not inspect.ismodule(value)}


def test_the_package_exports_its_public_names_and_its_errors() -> None:
    """Nothing more, nothing less; sub-packages are reached as modules."""
    assert names_of(maka_trio) == PUBLIC | ERRORS
    for name in MODULES:
        assert inspect.ismodule(importlib.import_module(f"maka_trio.{name}"))


def test_every_error_is_exported_and_part_of_one_tree() -> None:
    """`errors` and the top level agree."""
    tree = {
        name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, errors.MakaError)
    }
    assert tree == ERRORS
    for name in tree:
        assert getattr(maka_trio, name) is getattr(errors, name)


def test_every_fact_is_reached_through_facts_and_knows_its_kind() -> None:
    """`.kind` is the class name in snake case."""
    for name in FACTS:
        fact = getattr(facts, name)
        snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
        assert fact.kind == snake


def test_what_facts_promises_is_there() -> None:
    """`__all__` has no dead names."""
    for name in facts.__all__:
        assert hasattr(facts, name)


# --- names that are imported when they are asked for ------------------------------------------------------------


def stated_imports(module: types.ModuleType) -> dict[str, str]:
    """What type checkers are told: the names, and where each comes from."""
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text())
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module != "typing"]
    return {alias.name: str(node.module) for node in statements for alias in node.names if alias.asname == alias.name}


@pytest.mark.parametrize("package", ["maka_trio", "maka_trio.protocol"])
def test_type_checkers_and_programs_find_the_same(package: str) -> None:
    """Each name is stated twice, and comes from where it is said to come from."""
    module: Any = importlib.import_module(package)
    stated = stated_imports(module)
    assert set(stated) == set(module.__all__) == {name for name in dir(module) if not name.startswith("_")}
    for name, home in stated.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name)


def test_a_star_import_brings_every_public_name() -> None:
    """As if all had been imported before."""
    space: dict[str, Any] = {}
    exec("from maka_trio import *", space)
    assert space.keys() >= PUBLIC | ERRORS
    assert space["Engine"] is maka_trio.Engine
    assert set(maka_trio.__all__) <= vars(maka_trio).keys()  # found once, they are found like any other


def test_a_name_that_does_not_exist_is_missing_as_anywhere() -> None:
    """The error names the package and the name."""
    with pytest.raises(AttributeError, match="'maka_trio' has no attribute 'Enigne'"):
        maka_trio.Enigne  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError, match="Enigne"):
        from maka_trio import Enigne  # type: ignore[attr-defined]  # noqa: F401


@pytest.mark.parametrize(
    ("statement", "unneeded"),
    [
        ("import maka_trio", {"trio", "httpx", "sqlite3", "maka_trio.facts", "maka_trio.engine"}),
        (
            "from maka_trio import Engine, EventLog, ModelExecutor",
            {"maka_trio.code", "maka_trio.testing", "maka_trio.protocol.anthropic", "maka_trio.protocol.openai_chat"},
        ),
        ("from maka_trio import AnthropicOptions", {"maka_trio.protocol.chat_options", "maka_trio.engine", "sqlite3"}),
    ],
)
def test_an_import_brings_what_it_asks_for(statement: str, unneeded: set[str]) -> None:
    """Parts that a program does not use cost it nothing."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert set(done.stdout.split()) & unneeded == set()
