"""Families of JSON Schemas, each drawn anew from a seed, with what to ask for."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]

NAMES = ("title", "author", "city", "country", "colour", "animal", "reason", "summary", "label", "owner")
WORDS = ("red", "green", "blue", "small", "large", "open", "closed", "north", "south", "high", "low")
SUBJECTS = (
    "a cat",
    "a town by the sea",
    "a library",
    "a bicycle",
    "the weather",
    "a market",
    "a ship",
    "an old friend",
)


def _string(rng: random.Random) -> Schema:
    return {"type": "string", "maxLength": rng.randint(8, 40)}


def _object(properties: dict[str, Schema], **more: Any) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties), **more}


def flat(rng: random.Random) -> Schema:
    names = rng.sample(NAMES, rng.randint(2, 4))
    return _object({name: _string(rng) for name in names})


def numbers(rng: random.Random) -> Schema:
    return _object({"count": {"type": "integer"}, "price": {"type": "number"}, "ready": {"type": "boolean"}})


def number_ranges(rng: random.Random) -> Schema:
    low = rng.randint(-50, 50)
    return _object(
        {
            "level": {"type": "integer", "minimum": low, "maximum": low + rng.randint(1, 200)},
            "share": {"type": "number", "minimum": 0, "maximum": 1},
            "above": {"type": "integer", "exclusiveMinimum": low, "exclusiveMaximum": low + 10},
        }
    )


def multiples(rng: random.Random) -> Schema:
    step = rng.choice((2, 3, 5, 10))
    return _object({"steps": {"type": "integer", "multipleOf": step, "minimum": 0, "maximum": 1000}})


def enumerations(rng: random.Random) -> Schema:
    return _object(
        {
            "state": {"enum": rng.sample(WORDS, 3)},
            "grade": {"type": "integer", "enum": [1, 2, 3]},
            "mixed": {"enum": [True, None, 7, "x"]},
        }
    )


def constants(rng: random.Random) -> Schema:
    return _object({"kind": {"const": rng.choice(WORDS)}, "version": {"const": 2}, "note": _string(rng)})


def nested(rng: random.Random) -> Schema:
    place = _object({"street": _string(rng), "number": {"type": "integer", "minimum": 1, "maximum": 999}})
    return _object({"name": _string(rng), "place": _object({"home": place, "work": place})})


def any_of(rng: random.Random) -> Schema:
    cat = _object({"kind": {"const": "cat"}, "lives": {"type": "integer", "minimum": 0, "maximum": 9}})
    dog = _object({"kind": {"const": "dog"}, "trick": _string(rng)})
    return _object({"pet": {"anyOf": [cat, dog]}, "alone": {"anyOf": [{"type": "boolean"}, {"type": "null"}]}})


def unions(rng: random.Random) -> Schema:
    return _object({"value": {"type": ["integer", "null"], "minimum": 0, "maximum": 99}, "or": {"type": ["boolean"]}})


def references(rng: random.Random) -> Schema:
    person = _object({"name": _string(rng), "age": {"type": "integer", "minimum": 0, "maximum": 120}})
    whole = _object({"buyer": {"$ref": "#/$defs/person"}, "seller": {"$ref": "#/$defs/person"}})
    return {**whole, "$defs": {"person": person}}


def recursion(rng: random.Random) -> Schema:
    node = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2},
        },
        "required": ["name"],
        "additionalProperties": False,
    }
    return {"$ref": "#/$defs/node", "$defs": {"node": node}}


def patterns(rng: random.Random) -> Schema:
    digits = rng.randint(2, 5)
    return _object(
        {
            "code": {"type": "string", "pattern": f"^[A-Z]{{2}}-[0-9]{{{digits}}}$"},
            "slug": {"type": "string", "pattern": "^[a-z]{3,10}(-[a-z]{2,8})?$"},
        }
    )


def formats(rng: random.Random) -> Schema:
    kinds = rng.sample(("date", "time", "date-time", "ipv4", "uuid", "email"), 3)
    return _object({kind.replace("-", "_"): {"type": "string", "format": kind} for kind in kinds})


def arrays(rng: random.Random) -> Schema:
    least = rng.randint(1, 3)
    items = {"type": "string", "maxLength": 15}
    return _object({"tags": {"type": "array", "items": items, "minItems": least, "maxItems": least + 2}})


def tuples(rng: random.Random) -> Schema:
    pair = [{"type": "integer", "minimum": 0, "maximum": 9}, {"enum": list(rng.sample(WORDS, 2))}]
    return _object({"pair": {"type": "array", "prefixItems": pair, "items": False, "minItems": 2}})


def arrays_of_objects(rng: random.Random) -> Schema:
    item = _object({"name": {"type": "string", "maxLength": 12}, "amount": {"type": "integer", "minimum": 1}})
    return _object({"items": {"type": "array", "items": item, "minItems": 1, "maxItems": 3}})


def closed(rng: random.Random) -> Schema:
    whole = _object({name: _string(rng) for name in rng.sample(NAMES, 2)}, additionalProperties=False)
    return {**whole, "required": whole["required"][:1]}


def maps(rng: random.Random) -> Schema:
    limit = {"type": "integer", "minimum": 0, "maximum": 9}
    return {"type": "object", "properties": {}, "additionalProperties": limit, "maxProperties": rng.randint(1, 3)}


def lengths(rng: random.Random) -> Schema:
    return _object({"word": {"type": "string", "minLength": 3, "maxLength": rng.randint(3, 9)}})


def all_of(rng: random.Random) -> Schema:
    base = _object({"id": {"type": "integer", "minimum": 0, "maximum": 999}})
    return {"allOf": [base, _object({"label": _string(rng)})]}


def odd_names(rng: random.Random) -> Schema:
    return _object(
        {"naïve key": {"type": "boolean"}, 'with "quotes"': {"type": "null"}, "ключ": {"enum": ["да", "нет"]}}
    )


def top_level_array(rng: random.Random) -> Schema:
    return {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "minItems": 2, "maxItems": 5}


FAMILIES: dict[str, Callable[[random.Random], Schema]] = {
    make.__name__: make
    for make in (
        *(flat, numbers, number_ranges, multiples, enumerations, constants, nested, any_of, unions, references),
        *(recursion, patterns, formats, arrays, tuples, arrays_of_objects, closed, maps, lengths, all_of),
        *(odd_names, top_level_array),
    )
}


def draw(family: str, seed: int) -> tuple[Schema, str]:
    """A schema of a family, and a question that an answer to it would fit."""
    rng = random.Random(f"{family} {seed}")
    return FAMILIES[family](rng), f"Describe {rng.choice(SUBJECTS)} as JSON. Be brief."
