"""The wire, sans-IO: bytes in, events out.

What users of the library need from here are the typed options of each protocol and the dialects of chat servers.
"""

from typing import TYPE_CHECKING

from maka_trio.exports import exports as _exports

if TYPE_CHECKING:
    from maka_trio.dialect import Dialect as Dialect
    from maka_trio.protocol.anthropic_options import AnthropicOptions as AnthropicOptions
    from maka_trio.protocol.chat_options import ChatOptions as ChatOptions
    from maka_trio.protocol.dialects import DIALECTS as DIALECTS
    from maka_trio.protocol.openai_responses_options import ResponsesOptions as ResponsesOptions
else:
    __getattr__, __dir__, __all__ = _exports(
        __name__,
        {
            "dialect": ("Dialect",),
            "protocol.anthropic_options": ("AnthropicOptions",),
            "protocol.chat_options": ("ChatOptions",),
            "protocol.dialects": ("DIALECTS",),
            "protocol.openai_responses_options": ("ResponsesOptions",),
        },
    )
