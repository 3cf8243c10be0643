"""Which image format some bytes are, by their first bytes. The name someone gave them does not count (semantics 3.12).

Knows no message and no protocol.
"""

from __future__ import annotations

from typing import Final

_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_TOLD_BY_BYTES: Final = frozenset({"image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp", "image/avif"})

_AVIF_BRANDS: Final = frozenset({b"avif", b"avis"})


def media_type_of(data: bytes) -> str | None:
    """The media type of a PNG, JPEG, GIF, WebP or AVIF image; None for anything else."""
    for signature, media_type in _SIGNATURES:
        if data.startswith(signature):
            return media_type
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    if data[4:8] == b"ftyp" and _AVIF_BRANDS & _brands(data):
        return "image/avif"
    return None


def true_type(media_type: str, data: bytes) -> str | None:
    """The type of media that are called `media_type`, as their bytes have it.

    None for bytes that are called an image of a kind that bytes would tell, and are none: a provider would refuse a
    whole request for them. Other kinds are what they are called, and so is a text, which may begin with anything.
    """
    name = media_type.lower()
    if name.startswith("text/"):
        return media_type
    found = media_type_of(data)
    return None if found is None and name in _TOLD_BY_BYTES else found or media_type


def _brands(data: bytes) -> set[bytes]:
    """The brands of an ISO media file: the major one, then (after a version) those it is compatible with."""
    box = data[8 : min(int.from_bytes(data[:4], "big"), 256)]
    return {box[start : start + 4] for start in range(0, len(box), 4) if start != 4}
