"""The event log: SQLite, one writer thread, and the trio face of both."""

from maka_trio.log.event_log import EventLog as EventLog
from maka_trio.log.follow import Follower as Follower
from maka_trio.log.invocations import InvocationRecord as InvocationRecord
from maka_trio.log.queries import Head as Head
from maka_trio.log.queries import SessionContext as SessionContext
from maka_trio.log.queries import SessionSafety as SessionSafety
from maka_trio.log.queries import SessionSummary as SessionSummary

__all__ = ["EventLog", "Follower", "Head", "InvocationRecord", "SessionContext", "SessionSafety", "SessionSummary"]
