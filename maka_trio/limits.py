"""Every default limit, with its unit and its reason. Sizes are bytes and times are seconds unless said."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024

# --- identities -------------------------------------------------------------------------------------------

IDENTITY_BYTES: Final = 4096
"""One id of an invocation, operation or call, in UTF-8. Ids are indexed, so they stay far below a page."""

TOOL_CALL_ID_BYTES: Final = 4000
"""A provider's call id. With a step id (36 characters) and the colon it stays within `IDENTITY_BYTES`."""

MODEL_TOOL_NAME_BYTES: Final = 256
"""The tool name in a model's call, in UTF-8. Longer ones are not names of tools anybody registered."""

# --- one model request ------------------------------------------------------------------------------------

REQUEST_BODY_BYTES: Final = 64 * MIB
"""One encoded request body; a larger one is refused before the network is used."""

INPUT_WINDOW_BYTES: Final = 32 * MIB
"""Request bodies in flight through one adapter binding. A larger body waits until it is alone."""

WIRE_EVENT_BYTES: Final = 8 * MIB
"""One provider event: an SSE event on the wire, or one encoded `ModelEvent`."""

RESPONSE_BYTES: Final = 64 * MIB
"""All encoded `ModelEvent`s of one response."""

ERROR_BODY_BYTES: Final = 64 * KIB
"""How much of an error body is read for its code and type. Providers' error bodies are a few hundred bytes."""

PLAIN_BODY_BYTES: Final = 8 * MIB
"""A whole JSON answer to a streaming request."""

DELTA_BYTES: Final = 8 * KIB
"""Text handed on in one delta, in UTF-8; longer text is split on a character boundary."""

OUTPUT_CHANNEL_ITEMS: Final = 4
"""Lots of events (one network read each) that may wait for the consumer before the socket is left alone."""

READ_AHEAD_STREAMS: Final = 16
"""With more connections open, a stream reads when its consumer waits and not before. Others use the time, and each
read brings more: many small reads are what many streams at once cost most."""

REST_TEXT: Final = 256
"""Characters of text in one lot from which on an answer comes too fast to be let rest; see `REST_SECONDS`."""

WIRE_EXCERPT_BYTES: Final = 200
"""How much of a foreign body is quoted in an error, escaped."""

PROVIDER_MESSAGE_BYTES: Final = 4096
"""A provider's own error text as it is kept."""

MAX_OUTPUT_TOKENS: Final = 2**53 - 1
"""The largest integer every JSON reader takes exactly."""

ANTHROPIC_OUTPUT_TOKENS: Final = 8000
"""`max_tokens` where a request states none: that protocol demands one, and its oldest models take no more."""

RUN_OUTPUT_TOKENS: Final = 10**10
"""The largest `max_output_tokens` of a run."""

# --- time -------------------------------------------------------------------------------------------------

IDLE_TIMEOUT: Final = 120.0
"""Provider silence before a request is given up: connecting, sending, waiting for headers or the next bytes."""

REST_SECONDS: Final = 0.1
"""The longest that a run lets a slow answer rest before it reads on, while nobody follows its session and more than
`READ_AHEAD_STREAMS` streams are open. What has come meanwhile is read, written and synced at once."""

REST_SECONDS_A_STREAM: Final = 0.0004
"""How long for each open stream: about what a read and its commit take, so that hundreds of slow answers leave the
processor idle for part of the time."""

CLEANUP_SECONDS: Final = 6.0
"""What a cancelled stream may take to close its connection before it reports unconfirmed cleanup."""

FINISH_GRACE_SECONDS: Final = 2.0
"""After a chat finish reason: how long trailing usage, `[DONE]` or the end of the body is waited for."""

LINGER_SECONDS: Final = 0.02
"""After a complete answer: how long the end of the HTTP body is waited for, so that the connection can be reused."""

IDLE_CONNECTIONS: Final = 20
"""Unused connections that one executor keeps open."""

KEEPALIVE_SECONDS: Final = 4.0
"""How long an unused connection is kept. Common servers (Node, uvicorn) close theirs after 5 s, and a request that
meets the closing is lost."""

UPLOAD_PIECE_BYTES: Final = 64 * KIB
"""A request body is sent in pieces of this size; each piece that the network takes is progress."""

DOWNLOAD_PIECE_BYTES: Final = 64 * KIB
"""What one read of a response body takes at most."""

RETRIES: Final = 9
"""Retries of one model step after replay-safe failures (ten requests in all)."""

RETRY_BASE_SECONDS: Final = 1.0
"""First backoff; it doubles with each failure."""

RETRY_MAX_SECONDS: Final = 32.0
"""The longest backoff of our own."""

RETRY_JITTER: Final = 0.25
"""Random share added to a backoff so that many runs do not come back together."""

RETRY_AFTER_HONOURED_SECONDS: Final = 300.0
"""The longest wait a provider may ask of us; a longer one fails at once with `retry_after` on the error."""

RETRY_AFTER_MAX_SECONDS: Final = (2**31 - 1) / 1000
"""A `Retry-After` beyond this is not a number anybody meant."""

# --- steps and tools --------------------------------------------------------------------------------------

MESSAGE_TEXT_BYTES: Final = 64 * KIB
"""Text of one user message given to a run."""

SYSTEM_PROMPT_BYTES: Final = 64 * KIB
"""The system prompt in a run's configuration."""

OPENING_BYTES: Final = MIB
"""The whole JSON of an opening, besides the tools it advertises."""

CWD_BYTES: Final = 4096
"""`cwd` in a configuration (Linux' PATH_MAX)."""

TOOLS: Final = 128
"""Tools in one catalog: the smallest cap among the providers."""

TOOL_NAME_BYTES: Final = 128
"""The name of a registered tool."""

TOOL_DEFINITIONS_BYTES: Final = MIB
"""All definitions of a catalog together, as JSON."""

TOOL_RESULT_BYTES: Final = 64 * MIB
"""The raw result of a tool, as JSON."""

TOOL_RESULT_DEPTH: Final = 64
"""Nesting of a raw result."""

TOOL_RESULT_NODES: Final = 1_000_000
"""JSON values in a raw result. Bounds the time a result is checked for, also one that contains itself."""

TOOL_ERROR_BYTES: Final = 64 * KIB
"""What is kept of the text of a failed tool call, in UTF-8."""

SCHEMA_BACKTRACKS: Final = 100_000
"""Steps one pattern of a schema may go back on one text; a text that needs more does not match."""

SCHEMA_PATTERN_BYTES: Final = MIB
"""One compiled pattern of a schema."""

PROJECTION_BYTES: Final = 256 * KIB
"""What of a result the model is shown."""

PROJECTION_NODES: Final = 20_000
"""JSON values in a projection."""

PROJECTION_DEPTH: Final = 32
"""Nesting of a projection."""

PROJECTION_PARTS: Final = 64
"""Content parts of a projection."""

MEDIA_BYTES: Final = 5 * MIB
"""One image that a tool returns."""

REQUEST_IMAGE_BYTES: Final = 12 * MIB
"""Images sent in one request, in actual bytes."""

REQUEST_AUDIO_BYTES: Final = 12 * MIB
"""Audio sent in one request, in actual bytes."""

JSON_DEPTH: Final = 128
"""Nesting of any JSON value in a fact. The parser of the interpreter's own stack sets the order of magnitude."""

JSON_INTEGER_DIGITS: Final = 4300
"""Digits of an integer. Python turns no longer one into text, or back."""

TOOL_CONCURRENCY: Final = 64
"""The highest `tool_concurrency`."""

STEP_CALLS: Final = 1024
"""Tool calls in one step. Whatever ends the run answers all that are left in one commit, of at most `BATCH_EVENTS`."""

STEP_INPUT_BYTES: Final = 6 * MIB
"""JSON of the inputs of one step's calls together. Below `RECOVERY_BYTES`, so that the log takes the step, and below
`CONTEXT_BYTES`, so that the session's next run can read it."""

PAUSED_TURNS: Final = 16
"""Times in one run that a provider may pause a turn and have its own content sent back."""

# --- the log ----------------------------------------------------------------------------------------------

NOTIFICATION_BYTES: Final = 128 * KIB
"""`text` and `model_text` of one `tool_notified`."""

EXECUTOR_TEXT_BYTES: Final = MIB
"""The answer of a foreign agent."""

FAILURE_MESSAGE_CHARACTERS: Final = 2048
"""The message in a failed end."""

BATCH_EVENTS: Final = 4096
"""Events that one transaction of the writer takes from its queue."""

BATCH_BYTES: Final = 32 * MIB
"""Bytes (facts and payloads) that one transaction takes together; a larger append goes alone."""

QUEUED_WRITES: Final = 65_536
"""Appends that may wait for the writer; more is refused, since their waiters would hold memory without end."""

CONTEXT_EVENTS: Final = 10_000
"""Facts that a run reads to rebuild its session's history: not observations, and not the finished calls of programs."""

CONTEXT_BYTES: Final = 8 * MIB
"""JSON of those facts, the inputs in dispatches and rejections apart: a model's are in its step as well, and nobody is
told of a program's."""

FACT_DEPTH: Final = JSON_DEPTH + 16
"""Nesting of a whole fact: a JSON value of `JSON_DEPTH` inside the fact's own objects."""

RECOVERED_INVOCATIONS: Final = 10_000
"""Open invocations that recovery lists at once."""

RECOVERY_OPERATIONS: Final = 10_000
"""Requests, calls and operations that one invocation may have unresolved: recovery holds them all. The log refuses
what would make them more."""

RECOVERY_BYTES: Final = 8 * MIB
"""JSON of the inputs of those calls that are neither dispatched nor rejected: their rejections repeat them."""

DELETION_EVENTS: Final = 256
"""Events whose bodies one transaction deletes; with `DELETION_BYTES`, what bounds how long appends wait for it."""

DELETION_BYTES: Final = MIB
"""What those events hold, their results and media included; a larger single event goes alone."""

DELETION_STEPS_AT_OPENING: Final = 64
"""Transactions by which opening a log goes on with a deletion that was cut off: nobody can cancel them. For the rest,
delete the bodies of the session again."""

DELETION_PAUSE_SECONDS: Final = 0.05
"""Between two attempts to empty the write-ahead log, which a reader of an older state prevents."""

FOLLOW_EVENTS: Final = 512
"""Events that a follower reads or holds at once; with `FOLLOW_BYTES`, what bounds the memory of a slow one."""

FOLLOW_BYTES: Final = MIB
"""JSON of those events; a larger single event is held alone."""

READERS: Final = 4
"""Read-only connections, and so threads, that one log uses at once."""

IDLE_CHECKPOINT_SECONDS: Final = 1.0
"""How long nothing is written before the writer copies its write-ahead log into the file."""

BUSY_SECONDS: Final = 10.0
"""How long SQLite waits for a foreign lock on the file."""
