"""The step loop: what is asked, what is dispatched, how a run ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from maka_trio import facts
from maka_trio.errors import (
    AdapterError,
    CleanupUnconfirmed,
    ModelIncomplete,
    ModelRefused,
    StepLimit,
    ToolFailed,
    ToolOutcomeUnknown,
)
from maka_trio.facts.message import MediaContent, Message, TextContent
from maka_trio.request import ProviderKind
from maka_trio.testing import Gate
from maka_trio.tools import ToolNesting, ToolSemantics
from tests.engine.scene import Scene, echo, registration, scene

KINDS = [ProviderKind.OPENAI_CHAT_COMPLETIONS, ProviderKind.OPENAI_COMPATIBLE, ProviderKind.ANTHROPIC]
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 32


@pytest.mark.parametrize("kind", KINDS)
async def test_a_message_is_answered(tmp_path: Path, kind: ProviderKind) -> None:
    """The whole path on each protocol: message, stream, step, durable end."""
    async with scene(tmp_path) as it:
        it.provider.say("Hello ", "you.")
        await it.engine.run(it.input("hi", kind=kind))
        assert await it.story() == "invocation_opened model_requested model_completed invocation_ended"
        completed = (await it.facts())[2]
        assert completed.output.text() == "Hello you."
        assert completed.output.finish_reason is facts.FinishReason.STOP
        assert (await it.facts())[-1].outcome == facts.Completed()
        it.provider.check_script()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_tool_is_called_and_its_result_sent_back(tmp_path: Path, kind: ProviderKind) -> None:
    """Request, step, T1, effect, T2, request: in this order in the log, and answered on the wire."""
    async with scene(tmp_path) as it:
        it.provider.call_tools(("echo", {"n": 1}, "c1"), text="let me see")
        it.provider.say("It was 1.")
        await it.engine.run(it.input(kind=kind, tools=[registration("echo", echo)]))
        assert await it.story() == (
            "invocation_opened model_requested model_completed tool_dispatched tool_settled "
            "model_requested model_completed invocation_ended"
        )
        assert '"n":1' in str(it.provider.requests[1].raw).replace('\\\\"', '"').replace(" ", "").replace('\\"', '"')


async def test_observations_lie_between_their_request_and_completion(tmp_path: Path) -> None:
    """Followers see the events of a step in stream order, each durable, before the step is accepted."""
    async with scene(tmp_path) as it:
        gate = Gate()
        it.provider.say("one ", gate, "two")
        running = await it.engine.start(it.input())
        seen: list[str] = []
        async for stored in running.events():
            if isinstance(stored.event.fact, facts.ModelObserved):
                event = stored.event.fact.event
                if isinstance(event, facts.PartDelta):
                    seen.append(event.text)
                    durable = [found.sequence for found in await it.events()]
                    assert stored.sequence in durable
                    gate.open()
        assert "".join(seen) == "one two"
        assert seen[0] == "one "
        kinds = [fact.kind for fact in await it.facts(observed=True)]
        first, last = kinds.index("model_observed"), len(kinds) - 1 - kinds[::-1].index("model_observed")
        assert kinds.index("model_requested") < first <= last < kinds.index("model_completed")


async def test_events_of_a_finished_run_can_be_read_again(tmp_path: Path) -> None:
    """`events` starts at the opening, whenever it is called, and ends with the end."""
    async with scene(tmp_path) as it:
        it.provider.say("hello")
        running = await it.engine.start(it.input())
        await running.wait()
        kinds = [stored.event.fact.kind async for stored in running.events()]
        assert kinds[0] == "invocation_opened"
        assert kinds[-1] == "invocation_ended"


async def test_events_of_a_run_whose_bodies_were_deleted_end_too(tmp_path: Path) -> None:
    """What the deletion left of each event is shown, up to that of the end."""
    async with scene(tmp_path) as it:
        it.provider.say("hello")
        running = await it.engine.start(it.input())
        await running.wait()
        before = [stored.event.fact.kind async for stored in running.events()]
        await it.log.retire("session")
        await it.log.delete_bodies("session")
        with trio.fail_after(10):
            left = [stored.event.fact async for stored in running.events()]
        assert [fact.of_kind for fact in left if isinstance(fact, facts.BodyDeleted)] == before


async def test_an_unknown_tool_is_rejected_and_the_model_is_told(tmp_path: Path) -> None:
    """`unavailable` is a rejection: no dispatch, no settlement, and the run goes on."""
    async with scene(tmp_path) as it:
        it.provider.call_tools(("nothing", {}, "c1"))
        it.provider.say("I see.")
        await it.engine.run(it.input())
        rejected = (await it.facts())[3]
        assert rejected.reason == facts.ToolRejection.unavailable()
        assert it.provider.requests[1].body["messages"][-1]["content"] == str(rejected.reason)


@pytest.mark.parametrize("arguments", ['"text"', "[1]", "null", '{"n":"x"}'])
async def test_arguments_of_the_wrong_shape_are_rejected_and_the_run_goes_on(tmp_path: Path, arguments: str) -> None:
    """Valid JSON that the schema refuses never reaches the tool."""
    from maka_trio.testing.answers import Call

    async with scene(tmp_path) as it:
        called = []

        async def strict(value: Any, call: Any) -> Any:
            called.append(value)

        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        it.provider.say(Call("strict", fragments=(arguments,), id="c1"))
        it.provider.say("I see.")
        await it.engine.run(it.input(tools=[registration("strict", strict, schema=schema)]))
        assert called == []
        rejected = (await it.facts())[3]
        assert rejected.reason.kind is facts.RejectionKind.INVALID_INPUT


@pytest.mark.parametrize("arguments", ['{"n":', '{"n":NaN}', '{"n":1}{"n":2}'])
async def test_arguments_that_are_not_json_fail_the_step(tmp_path: Path, arguments: str) -> None:
    """There is no step, so there is no tool fact either."""
    from maka_trio.testing.answers import Call

    async with scene(tmp_path) as it:
        it.provider.say(Call("echo", fragments=(arguments,), id="c1"))
        with pytest.raises(AdapterError):
            await it.engine.run(it.input(tools=[registration("echo", echo)]))
        assert await it.story() == "invocation_opened model_requested model_interrupted invocation_ended"


async def test_a_failing_tool_is_settled_and_the_run_goes_on(tmp_path: Path) -> None:
    """An ordinary exception is a known failure; its text is what the model sees."""
    async with scene(tmp_path) as it:

        async def fails(value: Any, call: Any) -> Any:
            raise ValueError("no such file")

        async def said(value: Any, call: Any) -> Any:
            raise ToolFailed("the disk is full")

        async def lost(value: Any, call: Any) -> Any:
            raise ToolOutcomeUnknown("the worker is gone")

        it.provider.call_tools(("fails", {}), ("said", {}), ("lost", {}))
        it.provider.say("I see.")
        tools = [registration("fails", fails), registration("said", said), registration("lost", lost)]
        await it.engine.run(it.input(tools=tools))
        settled = [fact.outcome for fact in await it.facts() if isinstance(fact, facts.ToolSettled)]
        assert [outcome.kind for outcome in settled] == ["failed", "failed", "unknown"]
        assert "no such file" in settled[0].message
        contents = [message["content"] for message in it.provider.requests[1].body["messages"][-3:]]
        assert contents == [outcome.message for outcome in settled]


async def test_an_effect_that_may_still_run_seals_the_run_as_unknown(tmp_path: Path) -> None:
    """No settlement is invented; the next run is told why it is refused."""
    from maka_trio.errors import ReconciliationRequired

    async with scene(tmp_path) as it:

        async def leaks(value: Any, call: Any) -> Any:
            raise CleanupUnconfirmed("the process does not answer")

        it.provider.call_tools(("leaks", {}, "c1"), ("leaks", {}, "c2"))
        with pytest.raises(CleanupUnconfirmed):
            await it.engine.run(it.input(tools=[registration("leaks", leaks)]))
        assert await it.story() == (
            "invocation_opened model_requested model_completed tool_dispatched tool_rejected invocation_ended"
        )
        outcome = (await it.facts())[-1].outcome
        assert outcome.failure_class is facts.FailureClass.OUTCOME_UNKNOWN
        with pytest.raises(ReconciliationRequired):
            await it.engine.run(it.input())

        it.provider.say("I will check.")
        await it.engine.run(it.input("go on", allow_prior_unknown=True, system_prompt="Be careful."))
        messages = it.provider.requests[-1].body["messages"]
        assert messages[0]["role"] == "system"
        assert messages[0]["content"].startswith("Be careful.")
        assert "leaks" in messages[0]["content"]
        answers = [message["content"] for message in messages if message["role"] == "tool"]
        assert answers[0].startswith("outcome_unknown")
        assert answers[1] == str(facts.ToolRejection.cancelled())


async def test_a_run_stops_at_its_step_limit(tmp_path: Path) -> None:
    """Every call of the last step has its outcome; the error says which limit it was."""
    async with scene(tmp_path) as it:
        for _ in range(2):
            it.provider.call_tools(("echo", {}))
        with pytest.raises(StepLimit, match="2"):
            await it.engine.run(it.input(tools=[registration("echo", echo)], max_steps=2))
        assert (await it.story()).endswith("tool_dispatched tool_settled invocation_ended")
        assert (await it.facts())[-1].outcome.failure_class is facts.FailureClass.STEP_LIMIT
        it.provider.say("fine")
        await it.engine.run(it.input())


@pytest.mark.parametrize("kind", KINDS)
async def test_no_tool_of_an_answer_cut_by_its_length_runs(tmp_path: Path, kind: ProviderKind) -> None:
    """Completion and rejection stand together, and the history is accepted by the next request."""
    async with scene(tmp_path) as it:
        it.provider.call_tools(("echo", {"n": 1}), finish=facts.FinishReason.LENGTH)
        with pytest.raises(ModelIncomplete):
            await it.engine.run(it.input(kind=kind, tools=[registration("echo", echo)]))
        assert await it.story() == "invocation_opened model_requested model_completed tool_rejected invocation_ended"
        *_, rejected, ended = await it.facts()
        assert rejected.reason.kind is facts.RejectionKind.PREPARATION_FAILED
        assert ended.outcome.failure_class is facts.FailureClass.MODEL_INCOMPLETE
        it.provider.say("go on")
        await it.engine.run(it.input("continue", kind=kind))


async def test_a_refused_answer_fails_the_run_once(tmp_path: Path) -> None:
    """A filtered answer has a class of its own, keeps what was streamed, and is never asked for again."""
    async with scene(tmp_path) as it:
        it.provider.raw_sse(
            b'data: {"id":"r","choices":[{"index":0,"delta":{"content":"par"},"finish_reason":null}]}\n\n'
            b'data: {"id":"r","choices":[{"index":0,"delta":{},"finish_reason":"content_filter"}]}\n\n'
            b"data: [DONE]\n\n"
        )
        with pytest.raises(ModelRefused):
            await it.engine.run(it.input())
        assert len(it.provider.requests) == 1
        observed = [fact.event for fact in await it.facts(observed=True) if isinstance(fact, facts.ModelObserved)]
        assert "par" in [event.text for event in observed if isinstance(event, facts.PartDelta)]
        assert (await it.facts())[-1].outcome.failure_class is facts.FailureClass.MODEL_REFUSED


async def test_a_finish_turn_tool_ends_the_run_when_it_succeeds(tmp_path: Path) -> None:
    """No further request is made."""
    async with scene(tmp_path) as it:
        it.provider.call_tools(("hand_in", {"grade": 1}))
        tool = registration("hand_in", echo, semantics=ToolSemantics.FINISH_TURN, nesting=ToolNesting.DIRECT_ONLY)
        await it.engine.run(it.input(tools=[tool]))
        assert len(it.provider.requests) == 1
        assert (await it.facts())[-1].outcome == facts.Completed()


async def test_an_exclusive_call_must_be_alone(tmp_path: Path) -> None:
    """The second call of the step is refused, in the place where it stands."""
    async with scene(tmp_path) as it:
        it.provider.call_tools(("alone", {}, "c1"), ("echo", {}, "c2"))
        it.provider.say("I see.")
        tools = [
            registration("alone", echo, semantics=ToolSemantics.EXCLUSIVE_STEP),
            registration("echo", echo),
        ]
        await it.engine.run(it.input(tools=tools))
        assert "tool_dispatched tool_settled tool_rejected" in await it.story()
        rejected = next(fact for fact in await it.facts() if isinstance(fact, facts.ToolRejected))
        assert rejected.reason == facts.ToolRejection.exclusive_conflict()


async def test_calls_run_one_at_a_time_by_default(tmp_path: Path) -> None:
    """The second call is not dispatched before the first has settled."""
    async with scene(tmp_path) as it:
        it.provider.call_tools(("echo", {}, "c1"), ("echo", {}, "c2"))
        it.provider.say("done")
        await it.engine.run(it.input(tools=[registration("echo", echo)]))
        assert "tool_dispatched tool_settled tool_dispatched tool_settled" in await it.story()


@pytest.mark.parametrize("kind", KINDS)
async def test_concurrent_calls_are_answered_in_call_order(tmp_path: Path, kind: ProviderKind) -> None:
    """T1 in call order, T2 as they finish (here 3, 1, 2), the history in call order."""
    async with scene(tmp_path) as it:
        gates = {name: Gate() for name in ("a", "b", "c")}

        def tool(name: str) -> Any:
            async def run(value: Any, call: Any) -> str:
                await gates[name].pass_through()
                return f"result {name}"

            return registration(name, run)

        it.provider.call_tools(("a", {}, "c1"), ("b", {}, "c2"), ("c", {}, "c3"))
        it.provider.say("done")
        running = await it.engine.start(it.input(kind=kind, tools=[tool(name) for name in gates], tool_concurrency=3))
        for gate in gates.values():
            await gate.reached()
        for name in ("c", "a", "b"):
            gates[name].open()
            settled = 0
            async for stored in running.events():
                settled += isinstance(stored.event.fact, facts.ToolSettled)
                if settled == 1 + ["c", "a", "b"].index(name):
                    break
        await running.wait()
        operations = [
            (fact.kind, fact.operation_id.rpartition(":")[2])
            for fact in await it.facts()
            if isinstance(fact, (facts.ToolDispatched, facts.ToolSettled))
        ]
        assert operations == [
            ("tool_dispatched", "c1"),
            ("tool_dispatched", "c2"),
            ("tool_dispatched", "c3"),
            ("tool_settled", "c3"),
            ("tool_settled", "c1"),
            ("tool_settled", "c2"),
        ]
        sent = str(it.provider.requests[1].raw)
        assert sent.index("result a") < sent.index("result b") < sent.index("result c")


async def test_no_more_calls_run_at_once_than_configured(tmp_path: Path) -> None:
    """Five calls, two at a time."""
    async with scene(tmp_path) as it:
        running = most = 0
        gate = Gate()

        async def tool(value: Any, call: Any) -> int:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await gate.pass_through()
            running -= 1
            return running

        it.provider.call_tools(*(("tool", {}) for _ in range(5)))
        it.provider.say("done")
        handle = await it.engine.start(it.input(tools=[registration("tool", tool)], tool_concurrency=2))
        await gate.reached(2)
        await trio.testing.wait_all_tasks_blocked(0.05)
        gate.open()
        await handle.wait()
        await gate.reached(5)
        assert most == 2


async def test_call_ids_that_restart_every_step_are_different_operations(tmp_path: Path) -> None:
    """Operation ids contain the step, so nothing is taken for already done."""
    async with scene(tmp_path) as it:
        for n in range(2):
            it.provider.call_tools(("echo", {"n": n}, "call_0"))
        it.provider.say("done")
        await it.engine.run(it.input(tools=[registration("echo", echo)]))
        dispatched = [fact for fact in await it.facts() if isinstance(fact, facts.ToolDispatched)]
        assert len({fact.operation_id for fact in dispatched}) == 2
        messages = it.provider.requests[2].body["messages"]
        calls = [call["id"] for message in messages for call in message.get("tool_calls", ())]
        answers = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
        assert calls == answers
        assert len(set(calls)) == 2


async def test_a_large_result_is_kept_whole_and_shown_bounded(tmp_path: Path) -> None:
    """The effect is recorded with all of its result; the next request stays small."""
    async with scene(tmp_path) as it:

        async def big(value: Any, call: Any) -> str:
            return "x" * (1 << 20)

        it.provider.call_tools(("big", {}))
        it.provider.say("done")
        await it.engine.run(it.input(tools=[registration("big", big)]))
        settled = next(stored for stored in await it.events() if isinstance(stored.event.fact, facts.ToolSettled))
        assert await it.log.resolve_tool_result("session", settled.event.id) == "x" * (1 << 20)
        assert len(it.provider.requests[1].raw) < 400 * 1024


async def unrepresentable(it: Scene, value: Any) -> facts.EffectFailed:
    async def tool(_: Any, call: Any) -> Any:
        return value

    it.provider.call_tools(("tool", {}))
    it.provider.say("I see.")
    await it.engine.run(it.input(tools=[registration("tool", tool)]))
    outcome: facts.EffectFailed = next(fact.outcome for fact in await it.facts() if isinstance(fact, facts.ToolSettled))
    return outcome


def nested(depth: int) -> Any:
    value: Any = None
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", [object(), float("inf"), {1: 2}, nested(100), b"bytes"], ids=lambda v: type(v).__name__
)
async def test_a_result_that_is_not_json_is_settled_as_lost(tmp_path: Path, value: Any) -> None:
    """The effect happened, and that is recorded; the model is told that its result was lost."""
    async with scene(tmp_path) as it:
        outcome = await unrepresentable(it, value)
        assert isinstance(outcome, facts.EffectFailed)
        assert "effect" in outcome.message


async def test_a_user_message_with_parts_reaches_the_model_in_order(tmp_path: Path) -> None:
    """Media bytes are kept as an artifact beside the opening and never stand in an event."""
    async with scene(tmp_path) as it:
        message = Message.user([TextContent("look"), MediaContent("image/png", data=PNG), TextContent("what is it?")])
        it.provider.say("a picture")
        await it.engine.run(it.input(message, supports_vision=True))
        content = it.provider.requests[0].body["messages"][0]["content"]
        assert [part["type"] for part in content] == ["text", "image_url", "text"]
        assert b"iVBOR" not in (tmp_path / "log.sqlite").read_bytes()
        it.provider.say("still the picture")
        await it.engine.run(it.input("again"))
        assert "without vision" in str(it.provider.requests[1].body["messages"][0]["content"])


async def test_the_same_picture_may_be_sent_twice(tmp_path: Path) -> None:
    """Each message has an artifact of its own, and both are sent."""
    async with scene(tmp_path) as it:
        message = Message.user([MediaContent("image/png", data=PNG)])
        for _ in range(2):
            it.provider.say("a picture")
            await it.engine.run(it.input(message, supports_vision=True))
        assert str(it.provider.requests[1].raw).count("iVBOR") == 2


async def test_a_later_turn_sees_the_whole_conversation(tmp_path: Path) -> None:
    """History comes from the log: the system prompt first, then both turns in order."""
    async with scene(tmp_path) as it:
        it.provider.say("one")
        await it.engine.run(it.input("first", system_prompt="Be brief."))
        it.provider.say("two")
        await it.engine.run(it.input("second", system_prompt="Be kind."))
        assert it.provider.requests[1].body["messages"] == [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "first"},
            {"role": "assistant", "content": "one"},
            {"role": "user", "content": "second"},
        ]


async def test_the_input_digest_can_be_recomputed_from_the_log(tmp_path: Path) -> None:
    """Folding the facts before each request gives the digest that the request carries."""
    from maka_trio.history import History

    async with scene(tmp_path) as it:
        it.provider.call_tools(("echo", {"n": 1}))
        it.provider.say("done")
        await it.engine.run(it.input(tools=[registration("echo", echo)], provider_options={"openai": {"seed": 1}}))
        history = History()
        checked = 0
        for stored in await it.events():
            fact = stored.event.fact
            if isinstance(fact, facts.ModelRequested):
                assert fact.input_digest == history.input_digest(
                    route_identity=fact.route_identity, model_id=fact.model_id
                )
                prefix = await it.log.prefix(1000, 1 << 20, facts.Session("session"))
                assert fact.source_high_water == stored.sequence - 1
                assert prefix.high_water >= fact.source_high_water
                checked += 1
            history.push(stored.event)
        assert checked == 2
