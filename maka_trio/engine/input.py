"""What a caller asks for, and what of it can be refused before anything is written.

`RunInput` is the whole request. `opening` is the static part of admission: it needs no log and no network,
and a run it refuses leaves no trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from maka_trio import limits
from maka_trio.continuing import identity_objection
from maka_trio.errors import InvalidInput
from maka_trio.facts import bounds
from maka_trio.facts.codec import digest, encode
from maka_trio.facts.continuation import ContinuationClaim, RunBoundary
from maka_trio.facts.event import Artifact, EventWrite, InvocationOpened, RuntimeEvent
from maka_trio.facts.identity import Invocation, new_id
from maka_trio.facts.json_value import JsonObject
from maka_trio.facts.message import ContentPart, MediaContent, TextContent, UserMessage
from maka_trio.facts.opening import (
    ContinuationOpening,
    InvocationConfiguration,
    InvocationInput,
    MessageInput,
    MessageOpening,
    RequestSurface,
    ToolDefinition,
    ToolMode,
    fingerprint_digest,
)
from maka_trio.facts.outcome import ArtifactRef
from maka_trio.records import frozen
from maka_trio.request import ProviderConfig, check_secrets, checked_options
from maka_trio.tools.catalog import ToolCatalog

if TYPE_CHECKING:  # Code Mode is an extra, imported where it is asked for
    from maka_trio.code.executor import CodeExecutor


@frozen
class MessageWork:
    """Answer a user message.

    Args:
        message: the text, or a user message with parts.
        tools: what the model may call.
        max_steps: model steps before the run ends with `StepLimit`; None for no limit.
        allow_prior_unknown: admit the run although an earlier one left an effect unconfirmed; the model is told.
    """

    message: str | UserMessage = attrs.field(validator=bounds.instance((str, UserMessage)))
    tools: ToolCatalog = attrs.field(factory=lambda: ToolCatalog([]), validator=bounds.instance(ToolCatalog))
    max_steps: int | None = attrs.field(
        default=None, validator=bounds.optional(bounds.integer(minimum=1, maximum=2**31 - 1))
    )
    allow_prior_unknown: bool = attrs.field(default=False, validator=bounds.flag)


@frozen
class ContinuationWork:
    """Go on where a sealed run of the session stopped, without a new user message.

    The model sees what that run saw and did, and nothing that the session did after it.

    Args:
        source: the end of that run, from `EventLog.boundary`. A run is continued once.
        tools: what the model may call; those that the run called must be among them.
        max_steps: model steps before the run ends with `StepLimit`; None for no limit.
    """

    source: RunBoundary = attrs.field(validator=bounds.instance(RunBoundary))
    tools: ToolCatalog = attrs.field(factory=lambda: ToolCatalog([]), validator=bounds.instance(ToolCatalog))
    max_steps: int | None = attrs.field(
        default=None, validator=bounds.optional(bounds.integer(minimum=1, maximum=2**31 - 1))
    )


@frozen
class RunInput:
    """One run: who, by which model, and what to do.

    Args:
        invocation: the identity; `Invocation.new(session_id)` makes a fresh turn.
        provider: where the model is.
        work: what to do: answer a message, or continue a run.
        provider_id: the application's own name for the provider connection.
        provider_options: options by protocol or dialect name, kept in the log. A credential among them is refused;
            `{"$secret": "name"}` stands for one of `ProviderConfig.secrets`.
        max_output_tokens: the output limit of each step, 1 to 10^10.
        supports_vision: whether images may be sent; otherwise a text stands in for them.
        configuration: what is frozen at admission.
        request_fingerprint: the application's own name for this request, kept in the opening; of a continuation its
            SHA-256, unless it is one.
    """

    invocation: Invocation = attrs.field(validator=bounds.instance(Invocation))
    provider: ProviderConfig = attrs.field(validator=bounds.instance(ProviderConfig))
    work: MessageWork | ContinuationWork = attrs.field(validator=bounds.instance((MessageWork, ContinuationWork)))
    provider_id: str = attrs.field(default="", validator=bounds.text(limit=limits.IDENTITY_BYTES))
    provider_options: JsonObject = attrs.field(factory=dict, converter=checked_options)
    max_output_tokens: int | None = attrs.field(
        default=None, validator=bounds.optional(bounds.integer(minimum=1, maximum=limits.RUN_OUTPUT_TOKENS))
    )
    supports_vision: bool = attrs.field(default=False, validator=bounds.flag)
    configuration: InvocationConfiguration = attrs.field(
        factory=InvocationConfiguration, validator=bounds.instance(InvocationConfiguration)
    )
    request_fingerprint: str | None = attrs.field(default=None, validator=bounds.optional(bounds.identity))

    def __attrs_post_init__(self) -> None:
        check_secrets(self.provider_options, self.provider)

    def surface(self, tools: tuple[ToolDefinition, ...]) -> RequestSurface:
        """What its requests carry besides the conversation, these tools among it."""
        return RequestSurface(
            tools=tools,
            provider_options=self.provider_options,
            max_output_tokens=self.max_output_tokens,
            supports_vision=self.supports_vision,
        )


def opening(
    run_input: RunInput, *, message_bytes: int = limits.MESSAGE_TEXT_BYTES, code: CodeExecutor | None = None
) -> EventWrite:
    """The opening of a run, with the media of its message as artifacts beside it.

    That of a continuation claims what is known without the log; `continuation.claimed` adds what is not.

    Args:
        run_input: what was asked for.
        message_bytes: the text its message may have, in UTF-8.
        code: what programs run with, for `ToolMode.CODE`.

    Raises:
        InvalidInput: something about the request can be refused before anything is written.
    """
    if not isinstance(run_input, RunInput):
        raise InvalidInput(f"a run takes a RunInput, not {type(run_input).__name__}")
    tools = _offered(run_input, code)
    surface = run_input.surface(tools)
    artifacts: tuple[Artifact, ...] = ()
    fact_input: MessageOpening | ContinuationOpening
    match run_input.work:
        case MessageWork() as work:
            content, artifacts = submitted_message(work.message, message_bytes)
            name = run_input.request_fingerprint
            fact_input = MessageOpening(content, name, (), work.allow_prior_unknown, surface)
        case ContinuationWork() as work:
            fact_input = _continuation(run_input, work.source, surface)
    fact = InvocationOpened(fact_input, run_input.configuration)
    without_tools = attrs.evolve(fact_input, surface=None)
    size = len(encode(without_tools, InvocationInput))
    if size > limits.OPENING_BYTES:
        raise InvalidInput(f"the opening has {size} bytes of JSON; the limit is {limits.OPENING_BYTES}")
    return EventWrite(RuntimeEvent.new(run_input.invocation, fact), artifacts=artifacts)


def _continuation(run_input: RunInput, source: RunBoundary, surface: RequestSurface) -> ContinuationOpening:
    objection = identity_objection(run_input.invocation, source.invocation)
    if objection is not None:
        raise InvalidInput(objection)
    name = run_input.request_fingerprint
    if name is None:  # a request without a name is one of its own
        name = run_input.invocation.invocation_id
    return ContinuationOpening(ContinuationClaim.of(source), fingerprint_digest(name), surface)


def _offered(run_input: RunInput, code: CodeExecutor | None) -> tuple[ToolDefinition, ...]:
    """The tools that the model of the run is told of."""
    tools = run_input.work.tools
    if run_input.configuration.tool_mode is ToolMode.DIRECT:
        return tools.definitions()
    if code is None:
        raise InvalidInput("tool_mode=ToolMode.CODE needs an engine with a CodeExecutor: Engine(log, models, code=...)")
    code.require()
    from maka_trio.code.cells import code_surface

    return code_surface(tools, code)


def submitted_message(
    message: str | UserMessage, limit: int = limits.MESSAGE_TEXT_BYTES
) -> tuple[MessageInput, tuple[Artifact, ...]]:
    """A user's message as a fact holds it, and its media as the artifacts that lie beside the fact.

    Raises:
        InvalidInput: it is blank, or its text has more than `limit` bytes, or its media too many.
    """
    if isinstance(message, str):
        return _checked(MessageInput(message), limit), ()
    parts: list[ContentPart] = []
    artifacts: list[Artifact] = []
    for part in message.content:
        if isinstance(part, MediaContent) and part.data is not None:
            artifact = _artifact(part, part.data)
            artifacts.append(artifact)
            part = attrs.evolve(part, data=None, artifact=artifact.ref.id, digest=artifact.ref.digest)
        parts.append(part)
    texts = "\n".join(part.text for part in parts if isinstance(part, TextContent))
    return _checked(MessageInput(texts, parts=tuple(parts)), limit), tuple(artifacts)


def _artifact(part: MediaContent, data: bytes) -> Artifact:
    if len(data) > limits.MEDIA_BYTES:
        raise InvalidInput(f"media of {len(data)} bytes; the limit is {limits.MEDIA_BYTES}")
    return Artifact(ArtifactRef(new_id(), part.media_type, len(data), digest(data)), data)


def _checked(content: MessageInput, limit: int) -> MessageInput:
    size = len(content.text.encode())
    if size > limit:
        raise InvalidInput(f"message text of {size} bytes; the limit is {limit}")
    if not content.parts and not content.text.strip():
        raise InvalidInput("the message text must not be blank")
    return content
