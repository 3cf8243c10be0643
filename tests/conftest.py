"""Settings of the whole suite."""

from __future__ import annotations

from hypothesis import settings

# Time is never asserted: a busy machine is no bug.
settings.register_profile("maka", deadline=None)
settings.load_profile("maka")
