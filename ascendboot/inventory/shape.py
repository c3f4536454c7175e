"""The JSON schema of an inventory with the words of each key beside it, and the way through it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic.json_schema import GenerateJsonSchema

from ascendboot.inventory.keys import InventoryKeys

if TYPE_CHECKING:
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import core_schema

    from ascendboot.inventory.sheet import Location

Shape: TypeAlias = "dict[str, Any]"


class _WithoutNull(GenerateJsonSchema):
    """A key that is left out is None in our model; in the file it is never null."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        made = super().default_schema(schema)
        if made.get("default", ...) is None:
            del made["default"]
        return made


@cache
def whole() -> Shape:
    """The schema of the whole file; `x-kind` and `x-default` are words for people."""
    return InventoryKeys.model_json_schema(schema_generator=_WithoutNull)


def resolve(shape: Shape) -> Shape:
    """`shape` with its `$ref` replaced by what it refers to; what stands beside it wins."""
    reference = shape.get("$ref")
    if reference is None:
        return shape
    referred = whole()["$defs"][reference.rpartition("/")[2]]
    return {**referred, **{key: value for key, value in shape.items() if key != "$ref"}}


def at(location: Location) -> Shape:
    """The shape of the value at `location`, or the innermost one on the way there."""
    shape = whole()
    for step in location:
        inner = _within(shape, step)
        if inner is None:
            break
        shape = inner
    return shape


def _within(shape: Shape, step: str | int) -> Shape | None:
    for form in (shape, *map(resolve, shape.get("oneOf", ()))):
        if isinstance(step, int):
            inner = form.get("items")
        else:
            inner = form.get("properties", {}).get(step, form.get("additionalProperties"))
        if inner:
            return resolve(inner)
    return None
