"""A structured-concurrency engine for LLM agents on trio.

    async with EventLog.open(path) as log, ModelExecutor() as models, Engine(log, models) as engine:
        done = await engine.run(run_input)

After a cancel, a crash, a silent provider or a slow consumer, the log still says exactly which effects ran; none
runs twice; the next run sees a history that the provider accepts.

`facts` holds the values everything speaks in, `errors` the exception tree (its classes are here too), `testing` what
tests of programs built on this library need.
"""

from typing import TYPE_CHECKING

from maka_trio.exports import exports as _exports

if TYPE_CHECKING:
    from maka_trio import errors as errors
    from maka_trio import facts as facts
    from maka_trio import laws as laws
    from maka_trio import limits as limits
    from maka_trio.code import CellLimits as CellLimits
    from maka_trio.code import CodeExecutor as CodeExecutor
    from maka_trio.engine import ContinuationCheck as ContinuationCheck
    from maka_trio.engine import ContinuationWork as ContinuationWork
    from maka_trio.engine import Engine as Engine
    from maka_trio.engine import MessageWork as MessageWork
    from maka_trio.engine import RetryPolicy as RetryPolicy
    from maka_trio.engine import RunInput as RunInput
    from maka_trio.engine import RunningInvocation as RunningInvocation
    from maka_trio.errors import AdapterError as AdapterError
    from maka_trio.errors import Busy as Busy
    from maka_trio.errors import CleanupUnconfirmed as CleanupUnconfirmed
    from maka_trio.errors import CommitError as CommitError
    from maka_trio.errors import CommitRejected as CommitRejected
    from maka_trio.errors import CommitUnknown as CommitUnknown
    from maka_trio.errors import ContextOverflow as ContextOverflow
    from maka_trio.errors import EngineClosed as EngineClosed
    from maka_trio.errors import InvalidInput as InvalidInput
    from maka_trio.errors import LogClosed as LogClosed
    from maka_trio.errors import LogCorrupt as LogCorrupt
    from maka_trio.errors import LogFull as LogFull
    from maka_trio.errors import LogInUse as LogInUse
    from maka_trio.errors import LogTooNew as LogTooNew
    from maka_trio.errors import LogUnsupported as LogUnsupported
    from maka_trio.errors import MakaError as MakaError
    from maka_trio.errors import ModelError as ModelError
    from maka_trio.errors import ModelIncomplete as ModelIncomplete
    from maka_trio.errors import ModelRefused as ModelRefused
    from maka_trio.errors import ModelTimedOut as ModelTimedOut
    from maka_trio.errors import PrefixTooLarge as PrefixTooLarge
    from maka_trio.errors import ProviderFailure as ProviderFailure
    from maka_trio.errors import ReconciliationRequired as ReconciliationRequired
    from maka_trio.errors import ResultUnavailable as ResultUnavailable
    from maka_trio.errors import RunCancelled as RunCancelled
    from maka_trio.errors import RunError as RunError
    from maka_trio.errors import SessionDeleted as SessionDeleted
    from maka_trio.errors import SessionRetired as SessionRetired
    from maka_trio.errors import StepLimit as StepLimit
    from maka_trio.errors import StoreError as StoreError
    from maka_trio.errors import ToolError as ToolError
    from maka_trio.errors import ToolFailed as ToolFailed
    from maka_trio.errors import ToolOutcomeUnknown as ToolOutcomeUnknown
    from maka_trio.facts.continuation import RunBoundary as RunBoundary
    from maka_trio.facts.identity import Invocation as Invocation
    from maka_trio.facts.message import Message as Message
    from maka_trio.facts.opening import InvocationConfiguration as InvocationConfiguration
    from maka_trio.facts.opening import ToolDefinition as ToolDefinition
    from maka_trio.facts.opening import ToolMode as ToolMode
    from maka_trio.log import EventLog as EventLog
    from maka_trio.models import ModelExecutor as ModelExecutor
    from maka_trio.models import ModelStream as ModelStream
    from maka_trio.protocol import AnthropicOptions as AnthropicOptions
    from maka_trio.protocol import ChatOptions as ChatOptions
    from maka_trio.protocol import Dialect as Dialect
    from maka_trio.protocol import ResponsesOptions as ResponsesOptions
    from maka_trio.request import ApiKey as ApiKey
    from maka_trio.request import ModelRequest as ModelRequest
    from maka_trio.request import ProviderConfig as ProviderConfig
    from maka_trio.request import ProviderKind as ProviderKind
    from maka_trio.request import RequestHeaders as RequestHeaders
    from maka_trio.steps import StepBuilder as StepBuilder
    from maka_trio.tools import ToolCall as ToolCall
    from maka_trio.tools import ToolCatalog as ToolCatalog
    from maka_trio.tools import ToolNesting as ToolNesting
    from maka_trio.tools import ToolRegistration as ToolRegistration
    from maka_trio.tools import ToolSemantics as ToolSemantics
    from maka_trio.tools import tool as tool
else:
    __getattr__, __dir__, __all__ = _exports(
        __name__,
        {
            "code": ("CellLimits", "CodeExecutor"),
            "engine": (
                "ContinuationCheck",
                "ContinuationWork",
                "Engine",
                "MessageWork",
                "RetryPolicy",
                "RunInput",
                "RunningInvocation",
            ),
            "errors": (
                "AdapterError",
                "Busy",
                "CleanupUnconfirmed",
                "CommitError",
                "CommitRejected",
                "CommitUnknown",
                "ContextOverflow",
                "EngineClosed",
                "InvalidInput",
                "LogClosed",
                "LogCorrupt",
                "LogFull",
                "LogInUse",
                "LogTooNew",
                "LogUnsupported",
                "MakaError",
                "ModelError",
                "ModelIncomplete",
                "ModelRefused",
                "ModelTimedOut",
                "PrefixTooLarge",
                "ProviderFailure",
                "ReconciliationRequired",
                "ResultUnavailable",
                "RunCancelled",
                "RunError",
                "SessionDeleted",
                "SessionRetired",
                "StepLimit",
                "StoreError",
                "ToolError",
                "ToolFailed",
                "ToolOutcomeUnknown",
            ),
            "facts.continuation": ("RunBoundary",),
            "facts.identity": ("Invocation",),
            "facts.message": ("Message",),
            "facts.opening": ("InvocationConfiguration", "ToolDefinition", "ToolMode"),
            "log": ("EventLog",),
            "models": ("ModelExecutor", "ModelStream"),
            "protocol": ("AnthropicOptions", "ChatOptions", "Dialect", "ResponsesOptions"),
            "request": ("ApiKey", "ModelRequest", "ProviderConfig", "ProviderKind", "RequestHeaders"),
            "steps": ("StepBuilder",),
            "tools": ("ToolCall", "ToolCatalog", "ToolNesting", "ToolRegistration", "ToolSemantics", "tool"),
        },
        modules=("errors", "facts", "laws", "limits"),
    )
