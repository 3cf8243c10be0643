"""What of a conversation's media a request carries: under which type, how much of it, and what is said of the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from maka_trio.engine import media
from maka_trio.facts.message import MediaContent, Message, TextContent
from maka_trio.request import ProviderKind
from maka_trio.tools import ToolContent, ToolImage
from tests.engine.scene import Scene, registration, scene

PNG = b"\x89PNG\r\n\x1a\n"
OVER = "over the media budget of one request"
KINDS = [kind for kind in ProviderKind if kind is not ProviderKind.OPENAI_COMPATIBLE]


@pytest.fixture
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget of 100 bytes of images."""
    budget = media._Budget
    monkeypatch.setattr(media, "_Budget", lambda: budget(images=100))


def picture(size: int, called: str = "image/png") -> MediaContent:
    """An image of so many bytes."""
    return MediaContent(called, data=PNG.ljust(size, b"."))


async def asked(it: Scene, *parts: Any, **settings: Any) -> list[Any]:
    """The content of the last message of a request that asks with these parts."""
    it.provider.say("ok")
    settings.setdefault("supports_vision", True)
    await it.engine.run(it.input(Message.user([*parts]), **settings))
    content: list[Any] = it.provider.requests[-1].body["messages"][-1]["content"]
    return content


def shown(content: list[Any]) -> list[str]:
    """Texts as they are, images by their type and size in base64."""
    return [part.get("text") or part["image_url"]["url"].partition(";")[0] for part in content]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_image_goes_out_as_what_it_is(tmp_path: Path, kind: ProviderKind) -> None:
    """Whoever named it was wrong; the log keeps what they said."""
    async with scene(tmp_path) as it:
        it.provider.say("ok")
        await it.engine.run(it.input(Message.user([picture(20, "image/jpeg")]), kind=kind, supports_vision=True))
        assert b"image/png" in it.provider.requests[0].raw
        assert b"image/jpeg" not in it.provider.requests[0].raw
        (opened, *_) = await it.facts()
        assert opened.input.content.parts[0].media_type == "image/jpeg"


async def test_bytes_that_are_no_image_are_said_to_be_none(tmp_path: Path) -> None:
    """One bad picture does not spoil a session: the provider would refuse every request that carries it."""
    async with scene(tmp_path) as it:
        content = await asked(it, TextContent("see"), MediaContent("image/png", data=b"no picture"), picture(20))
        assert shown(content) == ["see", "[image/png left out: unsupported_mime]", "data:image/png"]
        again = await asked(it, TextContent("and"), picture(20))
        assert shown(again) == ["and", "data:image/png"]


async def test_an_image_under_another_name_needs_vision_too(tmp_path: Path) -> None:
    """What the model is not to be shown is told by its bytes as well."""
    async with scene(tmp_path) as it:
        part = picture(20, "application/octet-stream")
        content = await asked(it, TextContent("see"), part, supports_vision=False)
        assert shown(content) == ["see", "[image/png left out: the model is used without vision]"]
        content = await asked(it, TextContent("see"), part, session="other")
        assert shown(content) == ["see", "data:image/png"]


@pytest.mark.usefixtures("small_budget")
async def test_a_message_says_how_many_of_its_images_are_missing(tmp_path: Path) -> None:
    """First come, first served, by size; the count stands at the end of each message that lost some."""
    async with scene(tmp_path) as it:
        first = [picture(40), TextContent("look"), picture(70), picture(50), picture(80)]
        count = f"[2 images of this message left out: {OVER}]"
        assert shown(await asked(it, *first)) == ["data:image/png", "look", "data:image/png", count]
        content = await asked(it, picture(20), TextContent("and this?"))
        assert shown(content) == ["and this?", f"[an image of this message left out: {OVER}]"]
        earlier = it.provider.requests[-1].body["messages"][0]["content"]
        assert shown(earlier) == ["data:image/png", "look", "data:image/png", count]


@pytest.mark.usefixtures("small_budget")
async def test_what_is_no_image_counts_for_itself(tmp_path: Path) -> None:
    """Files that do not fit are named where they stand; images that cannot be read are no missing ones."""
    async with scene(tmp_path) as it:
        pdf = MediaContent("application/pdf", data=b"%PDF".ljust(200))
        content = await asked(it, TextContent("see"), pdf, MediaContent("image/gif", data=b"x"), picture(200))
        assert shown(content) == [
            "see",
            f"[application/pdf left out: {OVER}]",
            "[image/gif left out: unsupported_mime]",
            f"[an image of this message left out: {OVER}]",
        ]


@pytest.mark.usefixtures("small_budget")
async def test_an_image_of_a_tool_is_missed_where_it_stood(tmp_path: Path) -> None:
    """A result is shown part by part."""

    async def look(value: Any, call: Any) -> Any:
        return ToolContent(["one", ToolImage(PNG.ljust(90)), "two", ToolImage(PNG.ljust(60))])

    async with scene(tmp_path) as it:
        it.provider.call_tools(("look", {}))
        it.provider.say("ok")
        await it.engine.run(
            it.input(tools=[registration("look", look)], kind=ProviderKind.ANTHROPIC, supports_vision=True)
        )
        (result,) = it.provider.requests[-1].body["messages"][-1]["content"]
        assert [part["type"] for part in result["content"]] == ["text", "image", "text", "text"]
        assert result["content"][-1]["text"] == f"[image/png left out: {OVER}]"


async def test_the_budget_is_twelve_mebibytes(tmp_path: Path) -> None:
    """Of actual bytes, not of what they are encoded to."""
    three, third = 4 * 1024 * 1024, "[2 images of this message left out: over the media budget of one request]"
    async with scene(tmp_path) as it:
        content = await asked(it, *[picture(three) for _ in range(3)], picture(8), picture(three))
        assert shown(content) == ["data:image/png"] * 3 + [third]
