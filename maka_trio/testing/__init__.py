"""What tests of programs built on maka_trio need: a provider on a script, the explorer, faults, and checks."""

from maka_trio.testing.answers import (
    Call,
    Disconnect,
    Headers,
    Heartbeat,
    Raw,
    Reset,
    Silence,
    Text,
    Thinking,
    WireError,
)
from maka_trio.testing.checks import Effects, channels_closed, lawful, no_leaks
from maka_trio.testing.crash import CRASHES, crash_everywhere
from maka_trio.testing.exploration import Attempt, Exploration, TrialViolation
from maka_trio.testing.explorer import explore
from maka_trio.testing.fault_points import SOCKET_FAULTS, FaultPoint
from maka_trio.testing.faults import COMMIT_FAULTS, TOOL_FAULTS, fallible, fault_everywhere
from maka_trio.testing.gate import Gate
from maka_trio.testing.interpreter import ScriptedInterpreters
from maka_trio.testing.kill import KILLS, run_killed_trial
from maka_trio.testing.log_trial import LogTrialResult, run_log_trial
from maka_trio.testing.orders import Decisions
from maka_trio.testing.provider import ScriptedProvider
from maka_trio.testing.requests import RecordedRequest
from maka_trio.testing.scheduling import UnsupportedTrio
from maka_trio.testing.trial import Shot, Trial
from maka_trio.testing.trial_run import TrialResult, run_trial

__all__ = [
    "COMMIT_FAULTS",
    "CRASHES",
    "KILLS",
    "SOCKET_FAULTS",
    "TOOL_FAULTS",
    "Attempt",
    "Call",
    "Decisions",
    "Disconnect",
    "Effects",
    "Exploration",
    "FaultPoint",
    "Gate",
    "Headers",
    "Heartbeat",
    "LogTrialResult",
    "Raw",
    "RecordedRequest",
    "Reset",
    "ScriptedInterpreters",
    "ScriptedProvider",
    "Shot",
    "Silence",
    "Text",
    "Thinking",
    "Trial",
    "TrialResult",
    "TrialViolation",
    "UnsupportedTrio",
    "WireError",
    "channels_closed",
    "crash_everywhere",
    "explore",
    "fallible",
    "fault_everywhere",
    "lawful",
    "no_leaks",
    "run_killed_trial",
    "run_log_trial",
    "run_trial",
]
