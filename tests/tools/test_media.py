"""Images are what their bytes say."""

from __future__ import annotations

import pytest

from maka_trio.tools.media import media_type_of


def iso_file(major: bytes, *compatible: bytes) -> bytes:
    brands = b"".join(compatible)
    return (16 + len(brands)).to_bytes(4, "big") + b"ftyp" + major + bytes(4) + brands + b"mdat"


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n....", "image/png"),
        (b"\xff\xd8\xff\xe0....", "image/jpeg"),
        (b"GIF87a....", "image/gif"),
        (b"GIF89a....", "image/gif"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
        (iso_file(b"avif"), "image/avif"),
        (iso_file(b"avis"), "image/avif"),
        (iso_file(b"mif1", b"miaf", b"avif"), "image/avif"),
    ],
)
def test_a_known_image_is_recognised(data: bytes, media_type: str) -> None:
    """By its first bytes."""
    assert media_type_of(data) == media_type


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x89PNG",
        b"GIF88a",
        b"RIFF\x10\0\0\0WAVE",
        b"RIFF",
        b"%PDF-1.7",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        iso_file(b"isom", b"mp42"),
        iso_file(b"heic"),
        b"\0\0\0\x10ftypisom" + b"avif",
        b"\xff\xff\xff\xffftyp" + b"x" * 1000 + b"avif",
    ],
)
def test_anything_else_is_no_image(data: bytes) -> None:
    """Also what is cut off, a film, and a version number that spells a brand."""
    assert media_type_of(data) is None
