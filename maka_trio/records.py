"""`frozen` and `define`: those of attrs, except that attrs comes to a class when the class is first used.

attrs writes the methods of a class as source code and has it compiled, which takes longer than all else that there is
to such a class. This library has hundreds of them, of which one program uses few. So a class is made with its slots,
and what attrs makes of it (`__init__`, `__eq__`, the fields, ...) takes its place at the first look at any of it.
Nothing else differs: to attrs, cattrs, `inspect` and type checkers it is an attrs class. But its methods may not use
`super()` without arguments.

Knows classes and attrs, and nothing of what the values mean.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import attrs

T = TypeVar("T")

Decorator: TypeAlias = Callable[..., Any]
"""`attrs.frozen` or `attrs.define`."""

_COMPARING: Final = ("__eq__", "__ne__", "__hash__")
_OTHERS: Final = (
    *("__init__", "__repr__", "__getstate__", "__setstate__"),
    *("__attrs_attrs__", "__attrs_props__", "__match_args__"),
)
"""With these, what a class may be asked for. More that attrs makes (`__lt__`, `__replace__`) needs an instance."""


@attrs.frozen
class _Example:
    """Shows how attrs keeps instances from being changed."""


_MAKING: Final = RLock()
"""Held while a class is made, and with it the bases that it needs: attrs leaves a note in the class it starts from."""

_UNCHANGING: Final = {name: vars(_Example)[name] for name in ("__setattr__", "__delattr__")}


class _Recipe:
    """How attrs makes a class: by which decorator with which settings, and from which source."""

    __slots__ = ("_decorator", "_made", "_settings", "_source")

    def __init__(self, decorator: Decorator, settings: dict[str, Any], source: type) -> None:
        self._decorator = decorator
        self._settings = settings
        self._source = source
        self._made: Mapping[str, Any] | None = None

    def follow(self, target: type) -> None:
        """Put everything that attrs makes into the class. Of threads that meet here, the first does it."""
        with _MAKING:
            if self._made is None:
                self._made = vars(self._decorator(self._source, **self._settings))
            self._put(self._made, target)

    def _put(self, made: Mapping[str, Any], target: type) -> None:
        for name in {*made, *_COMPARING, *_OTHERS}:
            there = vars(target).get(name)
            if name in made and (there is None or isinstance(there, _Later)):
                setattr(target, name, made[name])
            elif isinstance(there, _Later):
                delattr(target, name)


class _Later:
    """Stands in a class for one thing that attrs makes, until somebody asks for it. A descriptor, so it is told."""

    __slots__ = ("_name", "_recipe", "_target")

    def __init__(self, recipe: _Recipe) -> None:
        self._recipe = recipe

    def __set_name__(self, target: type, name: str) -> None:
        self._target = target
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        self._recipe.follow(self._target)
        made = vars(self._target).get(self._name)
        if made is None or not hasattr(type(made), "__get__"):
            return getattr(owner if instance is None else instance, self._name)
        return made.__get__(instance, owner)  # as whoever asks wants it bound, which need not be to an instance


def _field_names(source: type) -> list[str]:
    """The fields that the class itself declares, by attrs' rule: everything annotated but class variables."""
    annotations = inspect.get_annotations(source)
    return [name for name, kind in annotations.items() if not str(kind).startswith(("ClassVar", "typing.ClassVar"))]


def _slots(source: type, fields: list[str]) -> tuple[str, ...]:
    """The slots that the bases do not have already."""
    assert source.__base__ is not None
    inherited = {name for base in source.__mro__[1:] for name in getattr(base, "__slots__", ())}
    referable = () if source.__base__.__weakrefoffset__ else ("__weakref__",)
    return (*(name for name in fields if name not in inherited), *referable)


def _with_slots(decorator: Decorator, settings: dict[str, Any], source: type[T]) -> type[T]:
    """The class with its slots, and everything else yet to come."""
    fields = _field_names(source)
    body = {name: value for name, value in vars(source).items() if name not in (*fields, "__dict__", "__weakref__")}
    recipe = _Recipe(decorator, settings, source)
    for name in (*_OTHERS, *(_COMPARING if settings.get("eq", True) else ())):
        body.setdefault(name, _Later(recipe))
    body |= _UNCHANGING if decorator is attrs.frozen else {}
    body |= {"__slots__": _slots(source, fields), "__qualname__": source.__qualname__}
    make: Callable[..., type[T]] = type(source)  # a class of its own metaclass
    return make(source.__name__, source.__bases__, body)


def _deferred(decorator: Decorator) -> Decorator:
    """The same decorator, with the same settings, for later."""

    def decorate(source: type | None = None, **settings: Any) -> Any:
        if source is None:
            return lambda source: _with_slots(decorator, settings, source)
        return _with_slots(decorator, settings, source)

    return decorate


if TYPE_CHECKING:  # type checkers know what these do
    from attrs import define as define
    from attrs import frozen as frozen
else:
    define = _deferred(attrs.define)
    frozen = _deferred(attrs.frozen)
