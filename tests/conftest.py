"""Settings of the whole suite: neither the machine nor chance decides how a test ends."""

from __future__ import annotations

import gc
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests import patience

# What one draw in a thousand finds says nothing of the change that happens to meet it, and a busy machine is no bug.
# To look further, by hand: `--hypothesis-profile=search`.
settings.register_profile(
    "maka", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("search", settings.get_profile("maka"), derandomize=False, max_examples=1000)
settings.load_profile("maka")

# Of tests that run in the background, shells let the Ctrl-C be ignored, and so would the programs that they interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Async tests run on a clock that a busy machine does not hurry."""
    for item in items:
        if item.get_closest_marker("trio") is not None:
            item.add_marker(pytest.mark.trio(run=patience.run), append=False)


def pytest_collection_finish() -> None:
    """What was collected stays to the end: no garbage collection after this one need look through it again."""
    gc.collect()
    gc.freeze()
