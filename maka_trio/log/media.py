"""The media that a user's message names and does not bring: they must be stored in its session, as it names them.

Asked once for each such part, by the thread that writes.
"""

from __future__ import annotations

import sqlite3

from maka_trio.facts.bounds import excerpt
from maka_trio.facts.message import MediaContent
from maka_trio.log.draft import ARTIFACTS, Draft
from maka_trio.log.prepared import PreparedWrite, message_media
from maka_trio.transitions import Refusal, refused


def check_media(connection: sqlite3.Connection, draft: Draft, session: int, write: PreparedWrite) -> None:
    """Hold what a message names of its session against what the file has and the draft will write.

    Raises:
        CommitRejected: it is not there, or is something else.
    """
    brought = {artifact.ref.id for artifact in write.artifacts}
    for part in message_media(write.event.fact):
        if part.artifact not in brought:
            _check(part, _planned(draft, session, part.artifact) or _stored(connection, session, part.artifact))


def _check(part: MediaContent, found: tuple[str, str] | None) -> None:
    name = excerpt(part.artifact)
    if found is None:
        raise refused(Refusal.MEDIA, f"artifact {name} is neither brought with its message nor stored in the session")
    media_type, digest = found
    if part.digest not in (None, digest):
        raise refused(Refusal.MEDIA, f"artifact {name} of this session is not the bytes that the message names")
    if part.media_type != media_type:
        raise refused(
            Refusal.MEDIA,
            f"artifact {name} of this session is {excerpt(media_type)}, and the message names it as "
            f"{excerpt(part.media_type)}",
        )


def _planned(draft: Draft, session: int, artifact_id: str | None) -> tuple[str, str] | None:
    for of, known, _, media_type, digest, _ in draft.beside.get(ARTIFACTS, ()):
        if (of, known) == (session, artifact_id):
            return media_type, digest
    return None


def _stored(connection: sqlite3.Connection, session: int, artifact_id: str | None) -> tuple[str, str] | None:
    found: tuple[str, str] | None = connection.execute(
        "SELECT media_type, digest FROM artifacts WHERE session = ? AND artifact_id = ?", (session, artifact_id)
    ).fetchone()
    return found
