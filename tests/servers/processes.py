"""Servers written by others, as processes of the test session: installed once, started on a free port, stopped."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

AIMOCK = "1.43.0"
LLMOCK = "0.2.2"

INSTALL_SECONDS = 300.0
START_SECONDS = 120.0
STARTS = 5
STARTED = b"--- started ---\n"
STOP_SECONDS = 10.0


def cache() -> Path:
    """Where the servers are installed; `MAKA_TRIO_SERVERS` names another place."""
    place = os.environ.get("MAKA_TRIO_SERVERS")
    return Path(place) if place else Path.home() / ".cache" / "maka-trio" / "servers"


def installed_aimock() -> list[str]:
    """The command of npm's `@copilotkit/aimock`, installed if it is not yet there."""
    npm, node = shutil.which("npm"), shutil.which("node")
    assert npm is not None, "these tests need npm on the PATH"
    assert node is not None, "these tests need node on the PATH"
    place = cache() / f"aimock-{AIMOCK}"
    script = place / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
    with _alone():
        if script.exists():
            return [node, str(script)]
        _install([npm, "install", "--no-audit", "--no-fund", "--prefix", str(place), f"@copilotkit/aimock@{AIMOCK}"])
    return [node, str(script)]


def installed_llmock() -> list[str]:
    """The command of PyPI's `llmock`, in an environment of its own: what it needs is not what we need."""
    place = cache() / f"llmock-{LLMOCK}-py{sys.version_info.major}.{sys.version_info.minor}"
    command = place / "bin" / "llmock"
    with _alone():
        if command.exists():
            return [str(command)]
        venv.create(place, with_pip=True, clear=True)
        _install([str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", f"llmock=={LLMOCK}"])
    return [str(command)]


@contextmanager
def _alone() -> Iterator[None]:
    """One process installs at a time: tests may run in several."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stderr[-2000:]}"


@attrs.frozen
class Server:
    """A running server."""

    port: int

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def ask(self, path: str, body: Any = None, *, method: str | None = None, **headers: str) -> Any:
        """Talk to its control interface: JSON in, JSON out. Blocks, which a local server makes short."""
        data = None if body is None else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(
            self.url + path, data, {"content-type": "application/json", **named}, method=method
        )
        with urllib.request.urlopen(request, timeout=START_SECONDS) as response:
            return json.loads(response.read() or b"null")


@contextmanager
def running(command: Sequence[str], log: Path, *, health: str) -> Iterator[Server]:
    """The server for the block. `{port}` in the command stands for its port; `health` is a path that answers."""
    server = Server(_free_port())
    process = _start(server, command, log)
    try:
        while not _is_up(server, health, process, log):
            server = Server(_free_port())  # somebody else may have taken the one before
            process = _start(server, command, log)
        yield server
    finally:
        _stop(process)


def _start(server: Server, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    arguments = [part.replace("{port}", str(server.port)) for part in command]
    with log.open("ab") as output:
        output.write(STARTED)
        output.flush()
        return subprocess.Popen(arguments, stdout=output, stderr=subprocess.STDOUT)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _is_up(server: Server, health: str, process: subprocess.Popen[bytes], log: Path) -> bool:
    """Wait until the server answers; false if it ended instead."""
    give_up = time.monotonic() + START_SECONDS
    while True:
        if process.poll() is not None:
            said = log.read_bytes()
            assert said.count(STARTED) < STARTS, f"the server ends at once:\n{said[-2000:].decode(errors='replace')}"
            return False
        try:
            server.ask(health)
        except OSError:
            assert time.monotonic() < give_up, f"the server did not answer:\n{log.read_text()[-2000:]}"
            time.sleep(0.05)
        else:
            return True


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
