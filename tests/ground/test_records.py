"""`frozen` classes are attrs classes, as soon as anybody looks; until then nothing is made of them."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
import re
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any, ClassVar

import attrs
import cattrs
import pytest

import maka_trio
from maka_trio import records
from maka_trio.facts.identity import Invocation
from maka_trio.records import define, frozen


def positive(instance: object, attribute: attrs.Attribute[Any], value: int) -> None:
    if value <= 0:
        raise ValueError(f"{attribute.name} is not positive")


class Plain:
    kind: ClassVar[str] = "point"
    x: int = attrs.field(validator=positive)
    y: int = attrs.field(default=2, converter=int)
    tags: list[str] = attrs.field(factory=list, repr=False)
    _sum: int = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_sum", self.x + self.y)

    @property
    def sum(self) -> int:
        return self._sum


def twins(name: str, bases: tuple[type, ...] = (), **settings: Any) -> tuple[Any, Any]:
    """The same class, made by attrs and by us."""
    classes = [type(name, bases, {**_body(Plain), "__qualname__": name}) for _ in range(2)]
    return attrs.frozen(classes[0], **settings), frozen(classes[1], **settings)


def _body(source: type) -> dict[str, Any]:
    return {key: value for key, value in vars(source).items() if key not in ("__dict__", "__weakref__")}


@frozen
class Point:
    """A class of a module, so that it can be pickled."""

    x: int
    y: int = 0


@frozen
class Deeper(Point):
    z: int = 0


def fresh() -> Any:
    """A class that nobody has looked at."""
    return twins("Fresh")[1]


# --- nothing differs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"eq": False}, {"kw_only": True}, {"order": True}], ids=str)
def test_the_class_has_what_attrs_gives_it(settings: dict[str, Any]) -> None:
    """The same names, but for what attrs notes of its own making."""
    theirs, ours = twins("Point", **settings)
    ours(x=1)
    assert set(vars(ours)) - {"__attrs_types_resolved__"} == set(vars(theirs))
    assert ours.__slots__ == theirs.__slots__
    assert inspect.signature(ours) == inspect.signature(theirs)
    assert ours.__match_args__ == theirs.__match_args__
    assert [field.name for field in attrs.fields(ours)] == [field.name for field in attrs.fields(theirs)]


def test_values_behave_as_those_of_attrs() -> None:
    """Made, checked, converted, shown, compared, hashed, changed into others."""
    theirs, ours = twins("Point")
    assert repr(ours(1, "5")) == repr(theirs(1, "5")) == "Point(x=1, y=5)"
    assert ours(1).sum == 3
    assert ours(1) == ours(1) != ours(2)
    assert ours(1) != theirs(1)
    assert hash(Point(1)) == hash(Point(1)) != hash(Point(2))
    assert attrs.evolve(ours(1), x=7) == ours(7)
    with pytest.raises(ValueError, match="x is not positive"):
        ours(0)
    with pytest.raises(TypeError, match="required positional argument"):
        ours()


def test_values_do_not_change() -> None:
    """Neither before nor after attrs came."""
    cls = fresh()
    for make in (object.__new__, lambda cls: cls(1)):
        value = make(cls)
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            value.x = 2
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            del value.x
        with pytest.raises(AttributeError):
            value.__dict__  # noqa: B018


def test_what_is_defined_may_change() -> None:
    """And is checked when it does, has no hash, and no attributes that it was not given."""
    ours = define(type("Point", (), _body(Plain)))
    theirs = attrs.define(type("Point", (), _body(Plain)))
    point = ours(1)
    point.x = 5
    assert point == ours(5)
    assert ours.__hash__ is theirs.__hash__ is None
    with pytest.raises(ValueError, match="x is not positive"):
        point.x = 0
    with pytest.raises(AttributeError):
        point.other = 1
    assert set(vars(ours)) == set(vars(theirs))


def test_with_eq_off_a_value_is_itself_only() -> None:
    """As attrs has it."""
    _, ours = twins("Point", eq=False)
    one = ours(1)
    assert one == one
    assert one != ours(1)
    assert len({one, ours(1)}) == 2


def test_with_order_values_are_ordered() -> None:
    """A method that no class has before it has an instance."""
    ours = twins("Point", order=True)[1]
    assert ours(1) < ours(2)


def test_own_methods_stay() -> None:
    """What the class says itself is not written over."""

    @frozen
    class Own:
        x: int

        def __repr__(self) -> str:
            return "mine"

        def __eq__(self, other: object) -> bool:
            return True

    assert repr(Own(1)) == "mine"
    assert Own(1) == 5
    assert Own.__hash__ is None


# --- the first look -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "look",
    [
        lambda cls: cls(1).x,
        lambda cls: attrs.fields(cls)[0].name,
        lambda cls: attrs.has(cls),
        lambda cls: inspect.signature(cls).parameters["x"],
        lambda cls: cls.__match_args__[0],
        lambda cls: cls.__eq__,
        lambda cls: cls.__hash__,
        lambda cls: repr(cls.__repr__),
        lambda cls: cattrs.Converter().structure({"x": 1}, cls).sum,
        lambda cls: cls.__setstate__(object.__new__(cls), {"x": 1}),
        lambda cls: frozen(type("Sub", (cls,), {"__annotations__": {}}))(3).sum,
        lambda cls: attrs.frozen(type("Sub", (cls,), {"__annotations__": {}}))(3).sum,
    ],
)
def test_whatever_is_looked_at_first_is_there(look: Any) -> None:
    """And with it all the rest."""
    cls = fresh()
    look(cls)
    assert vars(cls)["__attrs_attrs__"][0].name == "x"
    assert cls(1) == cls(1)


def test_matching_is_a_look() -> None:
    """By position, on a class that was never called."""
    cls = twins("Point")[1]
    value = object.__new__(cls)
    object.__setattr__(value, "x", 1)
    match value:
        case cls(x=1):
            pass
        case _:
            pytest.fail("it does not match")


def test_threads_may_look_at_the_same_time() -> None:
    """All see the same fields, whoever came first."""
    for _ in range(20):
        cls = fresh()
        together = threading.Barrier(4)
        seen: list[object] = []

        def look(cls: Any = cls, together: threading.Barrier = together, seen: list[object] = seen) -> None:
            together.wait()
            cls(1)
            seen.append(attrs.fields(cls))

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(fields is attrs.fields(cls) for fields in seen)


def test_a_signature_may_be_the_first_look() -> None:
    """Newer Pythons take `__init__` from the class as it lies there, and bind it to the class itself."""
    plain, _ = twins("Fresh")
    assert list(inspect.signature(fresh()).parameters) == list(inspect.signature(plain).parameters)
    cls = fresh()
    there = vars(cls)["__init__"]
    assert not inspect.isfunction(there)
    bound = there.__get__(cls, type)
    assert bound.__self__ is cls
    assert "self" not in inspect.signature(bound).parameters


def test_a_thread_waits_while_another_makes_the_class() -> None:
    """Going over what is in the class, attrs must not see it change, and leaves a note there itself."""
    failures: list[Exception] = []

    class InTheMiddle:
        """What stands in a class is asked for its class while attrs goes over it."""

        other: threading.Thread | None = None

        @property
        def __class__(self) -> type:
            if InTheMiddle.other is None:
                InTheMiddle.other = threading.Thread(target=make)
                InTheMiddle.other.start()
                InTheMiddle.other.join(0.2)  # as far as it comes: it waits, or it would be done in a moment
            return InTheMiddle

    def make() -> None:
        try:
            made.append(cls(1))
        except Exception as error:  # of a thread: the test looks at it
            failures.append(error)

    made: list[Any] = []
    annotations = {"x": "int"}
    cls: Any = frozen(type("Watched", (), {"middle": InTheMiddle(), "__annotations__": annotations, "after": 0}))
    make()
    assert InTheMiddle.other is not None
    InTheMiddle.other.join()
    assert not failures
    assert made == [cls(1), cls(1)]


def test_values_are_copied_pickled_and_referred_to() -> None:
    """As those of any class with slots."""
    point = Deeper(1, 2, 3)
    assert copy.copy(point) == copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == point
    assert weakref.ref(point)() is point


def test_a_pickled_value_may_be_the_first_of_its_class() -> None:
    """A process that has made none of them reads one."""
    value = Invocation.new("session")
    code = f"import pickle; print(pickle.loads({pickle.dumps(value)!r}))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == repr(value)


def test_a_subclass_adds_its_fields() -> None:
    """Without slots for those that it has from its base."""
    again = frozen(type("Again", (Point,), {"__annotations__": {"x": "int", "z": "int"}}))
    assert again.__slots__ == Deeper.__slots__ == ("z",)
    assert [field.name for field in attrs.fields(Deeper)] == ["x", "y", "z"]
    assert Deeper(1) != Point(1)


def test_what_some_attrs_does_not_make_is_not_there() -> None:
    """An older one notes less about a class."""

    def older(source: type, **settings: Any) -> type:
        made = attrs.frozen(source, **settings)
        del made.__attrs_props__  # type: ignore[attr-defined]
        return made

    cls = records._deferred(older)(type("Old", (), _body(Plain)))
    assert cls(1).sum == 3
    assert not hasattr(cls, "__attrs_props__")


# --- the library ---------------------------------------------------------------------------------------------


def our_classes() -> list[type]:
    """Every frozen class of the library."""
    for module in pkgutil.walk_packages(maka_trio.__path__, "maka_trio."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    modules = [module for name, module in sys.modules.items() if name.startswith("maka_trio.")]
    values = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    return [cls for cls in values if cls.__module__.startswith("maka_trio.") and attrs.has(cls)]


def test_no_method_of_ours_needs_the_class_it_was_written_in() -> None:
    """`super()` without arguments would find the class that `frozen` has replaced."""
    methods = [(cls, method) for cls in our_classes() for method in vars(cls).values() if inspect.isfunction(method)]
    assert len(methods) > 1000
    assert [(cls, method) for cls, method in methods if "__class__" in method.__code__.co_freevars] == []


def test_every_class_of_ours_waits_until_it_is_used() -> None:
    """None has attrs come to it at once: an import would pay for all of them."""
    root = Path(maka_trio.__path__[0])
    at_once = [path.name for path in root.rglob("*.py") if re.search(r"^ *@attrs\.", path.read_text(), re.MULTILINE)]
    assert at_once == ["records.py"]


def test_an_import_has_few_classes_written() -> None:
    """Only those that a module makes values of when it is imported."""
    code = (
        "import linecache\n"
        "from maka_trio import Engine, EventLog, ModelExecutor, tool\n"
        "print(sum('attrs generated' in name and 'maka_trio' in name for name in linecache.cache))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 10
