"""The public names are exactly these: adding one is a decision, losing one breaks somebody."""

from __future__ import annotations

import importlib
import inspect
import types

import maka_trio
from maka_trio import errors, facts

PUBLIC = {
    "AnthropicOptions", "ApiKey", "CellLimits", "ChatOptions", "CodeExecutor", "Dialect", "Engine", "EventLog",
    "Invocation", "InvocationConfiguration", "Message", "MessageWork", "ModelExecutor", "ModelRequest", "ModelStream",
    "ProviderConfig", "ProviderKind", "RequestHeaders", "ResponsesOptions", "RetryPolicy", "RunInput",
    "RunningInvocation", "StepBuilder", "ToolCall", "ToolCatalog", "ToolDefinition", "ToolMode", "ToolNesting",
    "ToolRegistration", "ToolSemantics", "tool",
}  # fmt: skip
MODULES = {"errors", "facts", "laws", "limits", "testing"}
ERRORS = {
    "AdapterError", "Busy", "CleanupUnconfirmed", "CommitError", "CommitRejected", "CommitUnknown", "ContextOverflow",
    "EngineClosed", "InvalidInput", "LogClosed", "LogCorrupt", "LogFull", "LogInUse", "LogTooNew", "LogUnsupported",
    "MakaError", "ModelError", "ModelIncomplete", "ModelRefused", "ModelTimedOut", "PrefixTooLarge", "ProviderFailure",
    "ReconciliationRequired", "ResultUnavailable", "RunCancelled", "RunError", "SessionRetired", "StepLimit",
    "StoreError", "ToolError", "ToolFailed", "ToolOutcomeUnknown",
}  # fmt: skip
FACTS = {
    "InvocationOpened", "ModelRequested", "ModelObserved", "ModelInterrupted", "ModelCompleted", "ToolDispatched",
    "ToolSettled", "ToolRejected", "ToolNotified", "MessageSteered", "ContextCheckpointRecorded",
    "ToolResultArchived", "InvocationEnded",
}  # fmt: skip


def names_of(module: types.ModuleType) -> set[str]:
    return {name for name, value in vars(module).items() if not name.startswith("_") and not inspect.ismodule(value)}


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
