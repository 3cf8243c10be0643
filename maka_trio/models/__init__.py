"""Model requests over HTTP: trio and httpx meet here and nowhere else."""

from maka_trio.models.executor import AdapterBinding as AdapterBinding
from maka_trio.models.executor import ExecutorStatistics as ExecutorStatistics
from maka_trio.models.executor import ModelExecutor as ModelExecutor
from maka_trio.models.stream import ModelStream as ModelStream
from maka_trio.models.window import InputWindow as InputWindow
