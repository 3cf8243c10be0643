"""Code Mode: programs a model writes, run apart from ours."""

from maka_trio.code.cell_limits import CellLimits as CellLimits
from maka_trio.code.executor import CodeExecutor as CodeExecutor
from maka_trio.code.executor import CodeStatistics as CodeStatistics
