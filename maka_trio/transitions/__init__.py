"""Which fact may follow which, within one invocation (semantics 2.3)."""

from maka_trio.transitions.model_steps import check_source as check_source
from maka_trio.transitions.model_steps import replay_barrier as replay_barrier
from maka_trio.transitions.open_work import AcceptedCall as AcceptedCall
from maka_trio.transitions.open_work import LiveOperation as LiveOperation
from maka_trio.transitions.open_work import OpenStep as OpenStep
from maka_trio.transitions.open_work import Residue as Residue
from maka_trio.transitions.refusal import Refusal as Refusal
from maka_trio.transitions.refusal import Undo as Undo
from maka_trio.transitions.refusal import refused as refused
from maka_trio.transitions.state import InvocationState as InvocationState

__all__ = [
    "AcceptedCall",
    "InvocationState",
    "LiveOperation",
    "OpenStep",
    "Refusal",
    "Residue",
    "Undo",
    "check_source",
    "refused",
    "replay_barrier",
]
