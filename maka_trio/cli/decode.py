"""`maka-trio decode`: what a recorded provider stream means, for people who debug a provider."""

from __future__ import annotations

import argparse
from pathlib import Path

from maka_trio.cli.json_lines import write_json_line
from maka_trio.cli.providers import PROTOCOLS, dialect_name
from maka_trio.cli.recording import Decoded, Fault, Replay, read_recording
from maka_trio.cli.screen import Look, Screen, stderr, stdout
from maka_trio.cli.words import call_text, excerpt, finish, json_excerpt, observed, source_text
from maka_trio.facts.codec import unstructure
from maka_trio.facts.json_value import JSON
from maka_trio.facts.model import (
    ModelEvent,
    ModelPart,
    ModelStep,
    PartDelta,
    SourcePart,
    TextKind,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's own arguments."""
    parser = commands.add_parser(
        "decode",
        help="show what a recorded provider stream means",
        description="Reads a recorded response body (server-sent events, or a JSON answer) and prints the model "
        "events with the bytes they come from, then the step, or the error with its byte offset and status 1.",
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the recorded body")
    parser.add_argument("--protocol", required=True, choices=list(PROTOCOLS), help="whose protocol it is in")
    parser.add_argument("--name", metavar="DIALECT", help="the dialect of a compatible server")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of words")
    parser.set_defaults(command=command)


def command(arguments: argparse.Namespace) -> int:
    """Run it."""
    kind = PROTOCOLS[arguments.protocol]
    replay = Replay(read_recording(arguments.file), kind, dialect_name(kind, arguments.name))
    show = _show_as_json if arguments.json else _show_in_words
    show(stdout(), replay)
    return 0 if replay.step is not None else 1


# --- as JSON --------------------------------------------------------------------------------------------------


def _show_as_json(screen: Screen, replay: Replay) -> None:
    for decoded in replay.events():
        write_json_line(screen, {"offset": decoded.offset, "event": unstructure(decoded.event, ModelEvent)})
    if replay.fault is not None:
        write_json_line(screen, {"offset": replay.fault.offset, "error": _error_json(replay.fault)})
    else:
        write_json_line(screen, {"step": unstructure(replay.step, ModelStep)})


def _error_json(fault: Fault) -> JSON:
    return {"type": type(fault.error).__name__, "message": str(fault.error)}


# --- in words -------------------------------------------------------------------------------------------------


def _show_in_words(screen: Screen, replay: Replay) -> None:
    screen.line((f"{'byte':>9}  model event", Look.FAINT))
    for decoded in replay.events():
        _show_event(screen, decoded)
    if replay.fault is not None:
        _show_fault(stderr(), replay.fault)
    elif replay.step is not None:
        screen.line()
        _show_step(screen, replay.step)


def _show_event(screen: Screen, decoded: Decoded) -> None:
    words = observed(decoded.event)
    part = f"{excerpt(decoded.event.id)} " if isinstance(decoded.event, PartDelta) else ""
    margin = f"{decoded.offset:>9}  {decoded.event.kind:<20} "
    screen.line((margin, Look.FAINT), (screen.fitted(part + words.text, len(margin)), words.look))


def _show_fault(screen: Screen, fault: Fault) -> None:
    name = type(fault.error).__name__
    screen.line((f"maka-trio: no step: {name} at byte {fault.offset}: {excerpt(str(fault.error))}", Look.BAD))


def _show_step(screen: Screen, step: ModelStep) -> None:
    named = [excerpt(value) for value in (step.model, step.response_id) if value is not None]
    screen.line((f"✓ step: {', '.join([finish(step.finish_reason.value, step.usage), *named])}", Look.GOOD))
    for part in step.parts:
        _show_part(screen, part)


def _show_part(screen: Screen, part: ModelPart) -> None:
    match part:
        case TextPart(text_kind=TextKind.THINKING, text=text):
            screen.line(("thinking: ", Look.FAINT), (text, Look.THINKING))
        case TextPart(text=text):
            screen.line(("text: ", Look.FAINT), (text, Look.MODEL))
        case ToolCallPart(call=call):
            screen.line(("call: ", Look.FAINT), (call_text(call), Look.TOOL), f"  id {excerpt(call.id)}")
        case ToolResultPart():
            failed = "error " if part.is_error else ""
            screen.line(("result: ", Look.FAINT), f"{excerpt(part.name)} {failed}{json_excerpt(part.output)}")
        case SourcePart(source=source):
            screen.line(("source: ", Look.FAINT), source_text(source))
