"""Programs of users, checked by the type checker and never run."""

from __future__ import annotations

from typing import assert_type

from maka_trio import (
    ApiKey,
    ContinuationCheck,
    ContinuationWork,
    Engine,
    EventLog,
    Invocation,
    Message,
    MessageWork,
    ModelExecutor,
    ModelRequest,
    ProviderConfig,
    ProviderKind,
    RunBoundary,
    RunInput,
    RunningInvocation,
    StepBuilder,
    ToolCall,
    ToolCatalog,
    ToolDefinition,
    ToolRegistration,
    facts,
    tool,
)


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def handler(value: facts.JSON, call: ToolCall) -> facts.JSON:
    with call.abort_scope() as scope:
        await call.cancelled.wait()
    return {"cancelled": scope.cancelled_caught, "name": call.name}


async def key() -> ApiKey:
    return ApiKey("...")


async def application(path: str) -> None:
    catalog = ToolCatalog([add, ToolRegistration(ToolDefinition("wait_for", "waits", {"type": "object"}), handler)])
    provider = ProviderConfig(ProviderKind.ANTHROPIC, "model", "https://example.org/v1", key)
    async with EventLog.open(path) as log, ModelExecutor(idle_timeout=30.0) as models, Engine(log, models) as engine:
        assert_type(log, EventLog)
        run_input = RunInput(Invocation.new("session"), provider, MessageWork("hi", tools=catalog))
        assert_type(await engine.run(run_input), Invocation)
        running = await engine.start(run_input)
        assert_type(running, RunningInvocation)
        async for stored in running.events():
            assert_type(stored, facts.StoredEvent)
        prefix = await log.prefix(100, 1 << 20)
        assert_type(prefix.project_invocation("x").terminal, facts.InvocationOutcome | None)
        result: facts.JSON = await log.resolve_tool_result("session", "event")
        print(result)
        source = await log.boundary("session", prefix.events[0].event.invocation.run_id)
        assert_type(source, RunBoundary)
        again = RunInput(Invocation.new("session"), provider, ContinuationWork(source, tools=catalog, max_steps=3))
        assert_type(await engine.check_continuation(again), ContinuationCheck)
        assert_type(await engine.run(again), Invocation)


async def model_only(models: ModelExecutor, provider: ProviderConfig) -> facts.ModelStep:
    builder = StepBuilder()
    async with models.stream(ModelRequest(provider, [Message.user("hi")])) as stream:
        async for event in stream:
            builder.push(event)
        await stream.aclose()
    return builder.finish()
