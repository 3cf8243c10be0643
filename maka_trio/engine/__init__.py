"""The engine: runs, from admission to their durable end."""

from maka_trio.engine.attempt import RetryPolicy as RetryPolicy
from maka_trio.engine.continuation import ContinuationCheck as ContinuationCheck
from maka_trio.engine.engine import ActiveRun as ActiveRun
from maka_trio.engine.engine import Engine as Engine
from maka_trio.engine.engine import EngineStatistics as EngineStatistics
from maka_trio.engine.input import ContinuationWork as ContinuationWork
from maka_trio.engine.input import MessageWork as MessageWork
from maka_trio.engine.input import RunInput as RunInput
from maka_trio.engine.running import RunEvents as RunEvents
from maka_trio.engine.running import RunningInvocation as RunningInvocation
