"""Recipes as text: read TOML, set single values by their dotted path, write the resolved settings."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from gradreg.errors import ConfigError, DataError
from gradreg.reading import DEPTH, toml_table


def parse(text: str, source: str) -> dict[str, Any]:
    """The tables in a TOML text; `source` names it in errors."""
    try:
        return toml_table(text, source)
    except DataError as error:
        raise ConfigError(str(error)) from None


def override(table: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """A copy with each `path.to.key=value` applied in order. A value that is not valid TOML is taken as a string."""
    result = dict(table)
    for setting in settings:
        path, equals, text = setting.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(keys):
            raise ConfigError(f"A setting must have the form key=value, for example objective.lam=1; got {setting!r}.")
        if len(keys) > DEPTH:
            raise ConfigError(f"A setting must have at most {DEPTH} names with dots between; got {len(keys)}.")
        _put(result, keys, _value(text.strip()))
    return result


def dumps(table: Mapping[str, Any]) -> str:
    """TOML with one line per setting; nested tables are written inline."""
    return "".join(f"{_key(key)} = {_literal(value)}\n" for key, value in table.items())


def _put(table: dict[str, Any], keys: list[str], value: Any) -> None:
    inner = table.get(keys[0])
    if len(keys) == 1:
        table[keys[0]] = value
        return
    # A name alone stands for a table: objective = "gradient" and then objective.lam=1.
    copy = {"name": inner} if isinstance(inner, str) else dict(inner or {}) if isinstance(inner, Mapping | None) else {}
    _put(copy, keys[1:], value)
    table[keys[0]] = copy


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        # JSON's escapes are TOML's, except that TOML wants DEL escaped too.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(key)} = {_literal(entry)}" for key, entry in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, Sequence):
        return f"[{', '.join(_literal(entry) for entry in value)}]"
    raise ConfigError(f"A recipe holds numbers, strings, lists and tables; got {value!r}.")


def _key(key: str) -> str:
    bare = key and all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in key)
    return key if bare else json.dumps(key, ensure_ascii=False)
