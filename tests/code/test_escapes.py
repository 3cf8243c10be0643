"""Programs that want out, or want too much: each ends in its stated way, in time, and the host goes on."""

from __future__ import annotations

import time
from typing import Any

import pytest
import trio

from maka_trio.code.outcome import ProgramError, ProgramFault
from maka_trio.limits import MIB
from tests.code.cell import fault_of, run, value_of, watching, workers

EXECUTION = ProgramFault.EXECUTION_ERROR
LIMIT = ProgramFault.LIMIT_EXCEEDED
PARSE = ProgramFault.PARSE_ERROR

SECONDS = 0.5
"""Running time of a program that its time is to end; ten times as much for one that must meet something else first."""

ATTEMPTS = 5
"""What holds up the host does so each time; what only the machine held up is in time at one of so many attempts."""

STALL = 0.25
"""Seconds that the loop may stand still, on a machine that others use too."""

ENDS: list[tuple[str, str, ProgramFault | None, str]] = [
    # what there is not
    ("socket", "import socket", EXECUTION, "socket"),
    ("subprocess", "import subprocess", EXECUTION, "subprocess"),
    ("ctypes", "import ctypes", EXECUTION, "ctypes"),
    ("multiprocessing", "import multiprocessing", EXECUTION, "multiprocessing"),
    ("threads", "import threading", EXECUTION, "threading"),
    ("builtins", "import builtins", EXECUTION, "builtins"),
    ("importlib", "import importlib", EXECUTION, "importlib"),
    ("inspect", "import inspect", EXECUTION, "inspect"),
    ("gc", "import gc", EXECUTION, "gc"),
    ("the library itself", "import maka_trio", EXECUTION, "maka_trio"),
    ("__import__", '__import__("os")', EXECUTION, "__import__"),
    ("input", "input()", EXECUTION, "input"),
    ("breakpoint", "breakpoint()", EXECUTION, "breakpoint"),
    ("globals", "globals()", EXECUTION, "globals"),
    ("os.system", 'import os\nos.system("id")', EXECUTION, "system"),
    ("os.fork", "import os\nos.fork()", EXECUTION, "fork"),
    ("os.kill", "import os\nos.kill(1, 9)", EXECUTION, "kill"),
    ("sys.modules", "import sys\nsys.modules", EXECUTION, "modules"),
    ("sys._getframe", "import sys\nsys._getframe()", EXECUTION, "_getframe"),
    # files, environment, descriptors
    ("read a file", 'open("/etc/passwd").read()', EXECUTION, "PermissionError"),
    ("write a file", 'open("/tmp/out", "w").write("x")', EXECUTION, "PermissionError"),
    ("read by pathlib", 'from pathlib import Path\nPath("/etc/passwd").read_text()', EXECUTION, "PermissionError"),
    ("list a folder", 'import os\nos.listdir("/")', EXECUTION, ""),
    ("a descriptor", "open(3)", EXECUTION, ""),
    ("descriptors by name", 'open("/proc/self/fd/0").read()', EXECUTION, "PermissionError"),
    ("memory by name", 'open("/proc/self/mem", "rb").read(10)', EXECUTION, "PermissionError"),
    ("environment", "import os\nos.environ", EXECUTION, ""),
    ("one variable", 'import os\nos.getenv("PATH")', EXECUTION, ""),
    ("os.read", "import os\nos.read(0, 10)", EXECUTION, "read"),
    # dunder walks
    ("class of a tuple", "().__class__.__base__.__subclasses__()", EXECUTION, "__class__"),
    ("base by name", "object.__subclasses__()", EXECUTION, ""),
    ("globals of a tool", "echo.__globals__", EXECUTION, "__globals__"),
    ("closure of a tool", "echo.__closure__", EXECUTION, "__closure__"),
    ("code of a tool", "echo.__code__", EXECUTION, "__code__"),
    ("format walk", '"{0.__class__.__init__.__globals__}".format(echo)', EXECUTION, ""),
    ("getattr walk", 'getattr(echo, "__globals__")', EXECUTION, ""),
    ("frame of an error", "try:\n  1/0\nexcept Exception as e:\n  e.__traceback__.tb_frame", EXECUTION, ""),
    # the parser
    ("parentheses", "(" * 60_000, PARSE, ""),
    ("brackets", "[" * 30_000 + "]" * 30_000, PARSE, ""),
    ("unary operators", "x = " + "-" * 60_000 + "1", PARSE, ""),
    ("a long sum", "x = " + "+".join(["1"] * 30_000), PARSE, ""),
    ("lambdas", "lambda: " * 8_000 + "1", PARSE, ""),
    ("nested ifs", "\n".join(" " * n + "if 1:" for n in range(300)) + "\n" + " " * 300 + "1", PARSE, ""),
    ("nested f-strings", 'f"{' * 5_000, PARSE, ""),
    ("NUL", "x = 1\0", PARSE, ""),
    ("a lone surrogate", 'x = "\ud800"', PARSE, ""),
    ("a program too long", "#" * 70_000, LIMIT, "65536"),
    ("eval of a bomb", 'eval("(" * 50000)', EXECUTION, ""),
    # memory
    ("a huge text", '"x" * (10 ** 9)', LIMIT, "memory"),
    ("a growing list", "x = []\nwhile True:\n  x.append([0] * 1000)", LIMIT, "memory"),
    ("a doubling text", 'x = "x"\nwhile True:\n  x += x', LIMIT, "memory"),
    ("a doubling list", "x = [0]\nwhile True:\n  x = x + x", LIMIT, "memory"),
    ("a growing dict", "x = {}\ni = 0\nwhile True:\n  x[i] = str(i)\n  i += 1", LIMIT, ""),
    ("bytes", "bytes(10 ** 9)", LIMIT, "memory"),
    ("padding", '"%1000000000d" % 1', LIMIT, "memory"),
    ("format padding", 'f"{1:1000000000}"', LIMIT, "memory"),
    ("a long range", "list(range(10 ** 10))", LIMIT, "memory"),
    ("many tasks", "import asyncio\nawait asyncio.gather(*[echo(i) for i in range(10 ** 7)])", LIMIT, ""),
    ("caught, and again", "while True:\n  try:\n    x = 'x' * (10 ** 9)\n  except MemoryError:\n    pass", LIMIT, ""),
    # time
    ("endless loop", "while True: pass", LIMIT, "seconds"),
    ("endless, caught", "while True:\n  try:\n    while True: pass\n  except BaseException: pass", LIMIT, "seconds"),
    ("endless in finally", "try:\n  1\nfinally:\n  while True: pass", LIMIT, "seconds"),
    ("endless tasks", "async def f(): pass\nwhile True: await f()", LIMIT, "seconds"),
    (
        "endless gather",
        "import asyncio\nasync def f(): pass\nwhile True: await asyncio.gather(f(), f())",
        LIMIT,
        "seconds",
    ),
    ("a long sum of numbers", "sum(range(10 ** 12))", LIMIT, ""),
    ("a long native call", 'import re\nre.sub("a", "b", "a" * 10_000_000)', LIMIT, ""),
    ("a sort", "x = list(range(500_000))\nwhile True: x.sort(key=lambda v: -v)", LIMIT, ""),
    # recursion and numbers
    ("recursion", "def f(): return f()\nf()", LIMIT, "RecursionError"),
    ("mutual recursion", "def f(): return g()\ndef g(): return f()\nf()", LIMIT, "RecursionError"),
    ("recursion in repr", "x = []\nfor i in range(100_000): x = [x]\nrepr(x)", None, ""),
    ("a deep value", "x = []\nfor i in range(1000): x = [x]\nx", LIMIT, "level"),
    ("a power", "2 ** (10 ** 9)", LIMIT, "memory"),
    ("a tower", "9 ** 9 ** 9", LIMIT, ""),
    ("a shift", "1 << (10 ** 10)", LIMIT, ""),
    ("a factorial", "x = 1\nfor i in range(1, 10 ** 7): x *= i", LIMIT, ""),
    ("digits of a number", 'int("9" * 1_000_000)', EXECUTION, "digits"),
    # regular expressions
    ("nested repeats", 'import re\nre.match("(a+)+$", "a" * 40 + "b")', None, ""),
    ("overlapping choices", 'import re\nre.match("(a|aa)+$", "a" * 60 + "b")', None, ""),
    ("a backreference", r"import re" "\n" r're.match(r"(a*)*\1b", "a" * 40)', EXECUTION, "backtracking"),
    ("a huge repeat", 'import re\nre.compile("(a{1000}){1000}")', EXECUTION, ""),
    # output and calls
    ("print for ever", 'while True: print("x" * 1000)', LIMIT, "wrote"),
    ("one huge print", 'print("x" * 3_000_000)', LIMIT, "wrote"),
    ("tiny prints", 'while True: print("", end="x")', LIMIT, ""),
    ("call for ever", "while True: await echo(1)", LIMIT, "times"),
    ("names for ever", "while True:\n  try: nothing\n  except NameError: pass", LIMIT, "times"),
    ("unknown calls for ever", "while True:\n  try: nothing(1)\n  except NameError: pass", LIMIT, "times"),
    ("imports for ever", "while True:\n  try: import nothing\n  except ImportError: pass", LIMIT, "times"),
    ("sleep for ever", "import time\nwhile True: time.sleep(0)", LIMIT, ""),
    ("sleep too long", "import time\ntime.sleep(1e9)", EXECUTION, "sleep"),
    ("sleep backwards", "import asyncio\nawait asyncio.sleep(float('nan'))", EXECUTION, ""),
    ("huge arguments", 'await echo("x" * 2_000_000)', EXECUTION, "JSON"),
    ("huge unknown call", "nothing([0] * 300_000)", EXECUTION, "nothing"),
    ("a huge value", '"x" * 2_000_000', LIMIT, "value"),
    ("a value of many parts", "[[] for i in range(190_000)]", LIMIT, ""),
    ("a value that multiplies", "a = [0] * 1000\nb = [a] * 1000\nb", LIMIT, "value"),
    ("a value that holds itself", "a = []\na.append(a)\na", None, ""),
]


@pytest.mark.parametrize(("program", "fault", "words"), [e[1:] for e in ENDS], ids=[e[0] for e in ENDS])
async def test_a_hostile_program_ends_as_stated(program: str, fault: ProgramFault | None, words: str) -> None:
    """In its stated way, within its limit and a second; the loop never stalls and memory is bounded."""
    seconds = SECONDS if fault is LIMIT and words in ("", "seconds") else SECONDS * 10
    for _ in range(ATTEMPTS):
        began = time.perf_counter()
        async with watching() as seen:
            with trio.fail_after(seconds + 60):
                end = await run(program, execution_seconds=seconds, host_calls=500, timers=20)
        took = time.perf_counter() - began
        assert fault_of(end) is fault, end
        if isinstance(end.result, ProgramError):
            assert words in end.result.message
            assert len(end.result.message) <= 4096
        assert seen.peak_memory < 64 * MIB + 40 * MIB
        assert workers() == []
        if took < seconds + 1 and seen.longest_stall < STALL:
            return
    raise AssertionError(f"took {took:.3f} s, and the loop stood still for {seen.longest_stall * 1e3:.1f} ms")


async def test_a_program_cannot_reach_the_gate_behind_its_functions() -> None:
    """The one host function has a name that nobody can guess, and is taken from the program's sight."""
    for name in ("_gate", "_build", "_tool", "_helper", "_json"):
        end = await run(f"{name} if True else None")
        assert fault_of(end) is EXECUTION or value_of(end) is None


async def test_a_program_cannot_change_what_its_functions_do() -> None:
    """They hold what they need; new meanings of `len`, `json` and their own names reach only the program."""
    program = "len = str = json = dumps = None\nimport json\njson.dumps = None\nawait echo(a=1)"
    end = await run(program)
    assert fault_of(end) in (None, EXECUTION)
    assert value_of(await run("len = lambda x: 0\nstr = None\nawait echo(a=1)")) == {"a": 1}


async def test_what_a_program_did_before_does_not_count_against_its_next_call() -> None:
    """Arguments of calls that are not there, and output, are no arguments of a call that is."""
    program = (
        "try:\n  nothing(['x' * 500000] * 2, 'y' * 900000)\nexcept NameError:\n  pass\n"
        "print('z' * 900000)\n[await echo('w' * 900000) == 'w' * 900000 for i in range(2)]"
    )
    assert value_of(await run(program)) == [True, True]


@pytest.mark.parametrize("size", [900_000, 1_040_000])
async def test_the_largest_values_do_not_stall_the_loop(size: int) -> None:
    """What is within the limits crosses without holding the host up."""
    stalls = []
    for _ in range(ATTEMPTS):
        async with watching() as seen:
            end = await run(f"'x' * {size}")
        assert len(value_of(end)) == size
        stalls.append(seen.longest_stall)
        if stalls[-1] < STALL:
            return
    raise AssertionError(f"the loop stood still for {stalls} seconds")


VALUES: list[tuple[str, Any]] = [
    ("1", 1),
    ("None", None),
    ("x = 1", None),
    ("a = []\na.append(a)\na", ["[...]"]),
    ("[1, 2.5, 'a', True, None, {'k': (1, 2)}]", [1, 2.5, "a", True, None, {"k": [1, 2]}]),
    ("{1: 2, None: 3}", {"1": 2, "None": 3}),
    ("{3}", [3]),
    ("float('inf')", "inf"),
    ("b'ab'", "b'ab'"),
    ("10 ** 30", 10**30),
]


@pytest.mark.parametrize(("program", "value"), VALUES)
async def test_a_value_is_handed_out_as_json(program: str, value: Any) -> None:
    """What JSON has no form for is shown by what it prints as."""
    assert value_of(await run(program)) == value
