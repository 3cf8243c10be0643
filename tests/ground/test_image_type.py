"""Images are what their bytes say."""

from __future__ import annotations

import pytest

from maka_trio.facts.image_type import media_type_of, true_type


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


PNG = b"\x89PNG\r\n\x1a\n...."


@pytest.mark.parametrize(
    ("called", "data", "is_one"),
    [
        ("image/jpeg", PNG, "image/png"),
        ("image/jpg", PNG, "image/png"),
        ("IMAGE/PNG", PNG, "image/png"),
        ("application/octet-stream", PNG, "image/png"),
        ("image/bmp", PNG, "image/png"),
        ("image/png", iso_file(b"avif"), "image/avif"),
        ("image/png", b"no picture", None),
        ("image/JPG", b"", None),
        ("image/avif", iso_file(b"heic"), None),
        ("image/bmp", b"BM", "image/bmp"),
        ("application/pdf", b"%PDF", "application/pdf"),
        ("audio/wav", b"RIFF\x10\0\0\0WAVE", "audio/wav"),
        ("text/plain", b"GIF89a is how such files begin", "text/plain"),
    ],
)
def test_media_are_what_their_bytes_say(called: str, data: bytes, is_one: str | None) -> None:
    """A wrong name is put right; bytes that are not the image they are called are none; other kinds keep their name."""
    assert true_type(called, data) == is_one
