"""How long does the import take, and how much is installed?"""

from __future__ import annotations

from benchmarks.question import Aim, Contender, Question

MODULE = "benchmarks.floors.imports"


def contender(label: str, statement: str, distribution: str, peer: str | None = None) -> Contender:
    """Run an import statement; count what `distribution` brings."""
    return Contender(label, MODULE, (statement, distribution), peer)


BASE = contender("trio, httpx, attrs, cattrs", "import trio, httpx, attrs, cattrs", "trio httpx attrs cattrs")
OURS = contender("maka_trio", "import trio, httpx, attrs, cattrs, maka_trio", "maka-trio")
PROGRAM = contender(
    "maka_trio, what a program uses",
    "import trio, httpx, attrs, cattrs; from maka_trio import Engine, EventLog, Message, ModelExecutor, "
    "MessageWork, ProviderConfig, RunInput, ToolCatalog, tool",
    "maka-trio",
)
EVERYTHING = contender(
    "maka_trio, every name", "import trio, httpx, attrs, cattrs; from maka_trio import *", "maka-trio"
)
OPENAI = contender("openai", "import openai", "openai", "openai")
PYDANTIC_AI = contender(
    "pydantic-ai-slim[openai]",
    "import pydantic_ai, pydantic_ai.models.openai",
    "pydantic-ai-slim[openai]",
    "pydantic-ai",
)
LANGGRAPH = contender(
    "langgraph + langchain-openai",
    "import langgraph.graph, langgraph.prebuilt, langchain_openai",
    "langgraph langchain-openai",
    "langgraph",
)
AGENTS = contender("openai-agents", "import agents", "openai-agents", "openai-agents")

QUESTIONS = (
    Question(
        "imports",
        "Milliseconds of an import in a fresh interpreter; distributions and MB that an installation brings.",
        (BASE, OURS, PROGRAM, EVERYTHING, OPENAI, PYDANTIC_AI, LANGGRAPH, AGENTS),
        (
            Aim(OURS.label, BASE.label, 1.5, 1.3, "ms", at_most=True),
            Aim(PROGRAM.label, BASE.label, 1.5, 1.3, "ms", at_most=True),
            Aim(PROGRAM.label, PYDANTIC_AI.label, 0.35, 0.2, "ms", at_most=True),
            Aim(PROGRAM.label, LANGGRAPH.label, 0.35, 0.2, "ms", at_most=True),
            Aim(PROGRAM.label, AGENTS.label, 0.35, 0.2, "ms", at_most=True),
            Aim(OURS.label, None, 16, 15, "distributions", at_most=True),
            Aim(OURS.label, None, 12, 8, "mb", at_most=True),
        ),
    ),
)
