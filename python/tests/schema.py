"""Checks JSON against the part of JSON Schema that pghot's schema uses.

As a program: `schema.py DOCUMENT` reads a document of that name of the schema from the standard
input. A keyword that it does not know is an error: nothing goes unchecked unseen.
"""

import json
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

SCHEMA = json.loads(
    (pathlib.Path(__file__).resolve().parents[2] / "docs/reference/pghot.schema.json").read_text()
)

TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}

#: Those that say nothing about a value.
REMARKS = {"title", "description", "default", "format", "$schema", "$defs"}


def is_of_type(value: Any, name: str) -> bool:
    if isinstance(value, bool) and name in ("integer", "number"):
        return False
    return isinstance(value, TYPES[name])


def errors(schema: Any, value: Any, path: str = "") -> Iterator[str]:
    """What is wrong with a value, one sentence each."""
    if schema is True:
        return
    for keyword, rule in schema.items():
        if keyword in REMARKS:
            continue
        elif keyword == "$ref":
            yield from errors(SCHEMA["$defs"][rule.removeprefix("#/$defs/")], value, path)
        elif keyword == "type":
            names = rule if isinstance(rule, list) else [rule]
            if not any(is_of_type(value, name) for name in names):
                yield f"{path}: {value!r} is no {rule}"
        elif keyword in ("anyOf", "oneOf"):
            fitting = [one for one in rule if not list(errors(one, value, path))]
            if not fitting or (keyword == "oneOf" and len(fitting) > 1):
                yield f"{path}: {value!r} fits {len(fitting)} of {keyword}"
        elif keyword == "const":
            if value != rule:
                yield f"{path}: {value!r} is not {rule!r}"
        elif keyword == "enum":
            if value not in rule:
                yield f"{path}: {value!r} is none of {rule}"
        elif keyword == "minimum":
            if isinstance(value, (int, float)) and value < rule:
                yield f"{path}: {value} is less than {rule}"
        elif isinstance(value, dict):
            yield from of_object(schema, keyword, rule, value, path)
        elif isinstance(value, list):
            yield from of_list(schema, keyword, rule, value, path)
        elif keyword not in OBJECTS | LISTS:
            raise NotImplementedError(keyword)


OBJECTS = {"properties", "required", "additionalProperties", "patternProperties"}
LISTS = {"items", "prefixItems", "minItems", "maxItems"}


def of_object(
    schema: dict[str, Any], keyword: str, rule: Any, value: dict[str, Any], path: str
) -> Iterator[str]:
    if keyword == "required":
        yield from (f"{path}: there is no {name}" for name in rule if name not in value)
    elif keyword == "properties":
        for name in rule.keys() & value.keys():
            yield from errors(rule[name], value[name], f"{path}/{name}")
    elif keyword == "additionalProperties":
        for name in value.keys() - schema.get("properties", {}).keys():
            if rule is False and "patternProperties" not in schema:
                yield f"{path}: {name} is not expected"
            elif rule is not False:
                yield from errors(rule, value[name], f"{path}/{name}")
    elif keyword == "patternProperties":
        # Keys that are numbers: nodes.
        (of_number,) = rule.values()
        for name in value:
            if not name.isdigit():
                yield f"{path}: {name} is not a number"
            yield from errors(of_number, value[name], f"{path}/{name}")
    elif keyword not in LISTS:
        raise NotImplementedError(keyword)


def of_list(
    schema: dict[str, Any], keyword: str, rule: Any, value: list[Any], path: str
) -> Iterator[str]:
    firsts = schema.get("prefixItems", [])
    if keyword == "items" and rule is not False:
        for at, item in enumerate(value[len(firsts) :], len(firsts)):
            yield from errors(rule, item, f"{path}/{at}")
    elif keyword == "prefixItems":
        for at, (one, item) in enumerate(zip(firsts, value)):
            yield from errors(one, item, f"{path}/{at}")
    elif keyword == "minItems" and len(value) < rule:
        yield f"{path}: {len(value)} items are too few"
    elif keyword == "maxItems" and len(value) > rule:
        yield f"{path}: {len(value)} items are too many"
    elif keyword not in OBJECTS | LISTS:
        raise NotImplementedError(keyword)


def document_errors(name: str, value: Any) -> list[str]:
    """What is wrong with a document."""
    found = list(errors(SCHEMA["$defs"][name], value))
    unknown = set(value) - set(resolved(name)["properties"])
    return found + [f"{field} is in no schema" for field in sorted(unknown)]


def resolved(name: str) -> dict[str, Any]:
    """A definition, references followed."""
    definition = SCHEMA["$defs"][name]
    while "$ref" in definition:
        definition = SCHEMA["$defs"][definition["$ref"].removeprefix("#/$defs/")]
    return definition


if __name__ == "__main__":
    told = document_errors(sys.argv[1], json.load(sys.stdin))
    print("\n".join(told), end="")
    sys.exit(1 if told else 0)
