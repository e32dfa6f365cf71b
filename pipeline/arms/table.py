"""All arms by kind: the parameter classes that the modules of this package define."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from inspect import isabstract
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Annotated, TypeGuard, Union

from pydantic import Field

from pipeline import arms
from pipeline.arms.parameters import Parameters


def _found() -> Iterator[type[Parameters]]:
    for module in iter_modules(arms.__path__):
        if module.name == "table":
            continue
        name = f"{arms.__name__}.{module.name}"
        for value in vars(import_module(name)).values():
            # Imported classes belong to another module; a base class of several arms has no kind.
            if isinstance(value, type) and value.__module__ == name and _is_arm(value):
                yield value


def _is_arm(value: type) -> TypeGuard[type[Parameters]]:
    return (
        issubclass(value, Parameters)
        and not isabstract(value)
        and isinstance(value.__dataclass_fields__["kind"].default, str)
    )


def _by_kind(classes: Iterator[type[Parameters]]) -> dict[str, type[Parameters]]:
    kinds: dict[str, type[Parameters]] = {}
    for parameters in classes:
        kind = str(parameters.__dataclass_fields__["kind"].default)
        if kind in kinds:
            raise TypeError(f"two arms of kind {kind}: {kinds[kind]} and {parameters}")
        kinds[kind] = parameters
    return kinds


KINDS: Mapping[str, type[Parameters]] = _by_kind(_found())

if TYPE_CHECKING:
    PolicySpec = Parameters
else:
    PolicySpec = Annotated[Union[tuple(KINDS.values())], Field(discriminator="kind")]  # noqa: UP007
    """Parameters of some kind, as the parser reads them."""
