# SPDX-License-Identifier: GPL-2.0-or-later
"""The directive qapi-reference: what qapi/batchflush.json defines, with its documentation.

QEMU's own extension needs QEMU's source and whole schema. This one reads one module, so that
the pages are built in seconds, and stops where a definition and its documentation differ.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from batchflush import paths

MODULE = paths.ROOT / "qapi/batchflush.json"
KINDS = ("struct", "enum", "union", "command", "event")


@dataclass
class Definition:
    """A struct, enum, union, command or event, and what its comment says."""

    kind: str
    name: str
    about: list[str]
    members: dict[str, list[str]]
    types: Mapping[str, str]
    base: str = ""
    returns: str = ""
    sections: dict[str, list[str]] = field(default_factory=dict)


# Reading the module


def definitions(text: str) -> list[Definition]:
    """All that the module defines, in its order."""
    found = []
    for comment, expression in re.findall(r"^##\n((?:#.*\n)+?)##\n(\{(?s:.*?)\}\n)", text, re.M):
        found.append(_definition(comment, _value(expression)))
    if len(found) != len(re.findall(r"^\{ '(?!include|pragma)", text, re.M)):
        raise ExtensionError("a definition in QAPI was not understood or has no documentation")
    return found


def _value(expression: str) -> dict[str, Any]:
    # QAPI's syntax is that of Python's literals but for these two words.
    python = re.sub(r"\b(true|false)\b", lambda word: word[0].title(), expression)
    return ast.literal_eval(python)


def _definition(comment: str, value: Mapping[str, Any]) -> Definition:
    kind = next(kind for kind in KINDS if kind in value)
    name, about, members, sections = _comment(comment)
    types = _types(value)
    if name != value[kind] or set(members) != set(types):
        differing = sorted(
            {name, value[kind]} if name != value[kind] else set(members) ^ set(types)
        )
        raise ExtensionError(f"{value[kind]}: definition and comment differ: {differing}")
    return Definition(
        kind, name, about, members, types,
        base=value.get("base", "") if isinstance(value.get("base"), str) else "",
        returns=_type(value["returns"]) if "returns" in value else "", sections=sections,
    )  # fmt: skip


def _types(value: Mapping[str, Any]) -> dict[str, str]:
    data = value.get("data", {})
    if "enum" in value:
        return {item if isinstance(item, str) else item["name"]: "" for item in data}
    own = dict(data) if "union" not in value else dict(value["base"])
    types = {}
    for name, kind in own.items():
        optional = ", optional" if name.startswith("*") else ""
        types[name.lstrip("*")] = _type(kind) + optional
    return types


def _type(kind: Any) -> str:
    if isinstance(kind, Mapping):
        kind = kind["type"]
    return f"list of {kind[0]}" if isinstance(kind, list) else kind


def _comment(comment: str) -> tuple[str, list[str], dict[str, list[str]], dict[str, list[str]]]:
    """Name, text, text by member, and the sections that QAPI knows (Errors, Returns, Since)."""
    lines = [re.sub(r"^# ?", "", line) for line in comment.splitlines()]
    about: list[str] = []
    members: dict[str, list[str]] = {}
    sections: dict[str, list[str]] = {}
    name, current = "", about
    for line in lines:
        symbol = re.match(r"@([\w-]+):\s*(.*)", line)
        section = re.match(r"(Errors|Returns|Since|Features|Notes?):\s*(.*)", line)
        if symbol and not name:
            name = symbol[1]
        elif symbol:
            current = members[symbol[1]] = [symbol[2]]
        elif section:
            current = sections[section[1]] = [section[2]]
        elif re.match(r"\.\. qmp-example::", line):
            current = sections["Example"] = []
        else:
            current.append(line)
    return name, about, members, sections


# Writing reStructuredText


def page(found: list[Definition], wanted: list[str]) -> Iterator[str]:
    """The definitions of some kinds, or of some names."""
    known = {definition.name for definition in found}
    for definition in found:
        if definition.kind in wanted or definition.name in wanted:
            yield from _told(definition, known)


def _told(definition: Definition, known: set[str]) -> Iterator[str]:
    name = definition.name
    yield from (f".. _qapi-{name}:", "", name, "-" * len(name), "")
    yield from _text(definition.about, known)
    if definition.base:
        yield from (f"*Has all members of* {_linked(definition.base, known)}.", "")
    for member, text in definition.members.items():
        kind = definition.types[member]
        yield f"``{member}``" + (f" ({_linked(kind, known)})" if kind else "")
        yield from (f"    {line}".rstrip() for line in _text(_dedented(text), known))
        yield ""
    if definition.returns:
        yield from (f"*Returns:* {_linked(definition.returns, known)}", "")
    for title, text in definition.sections.items():
        yield from _section(title, text, known)


def _section(title: str, text: list[str], known: set[str]) -> Iterator[str]:
    if title == "Example":
        yield from ("*Example*::", "", *text, "")
    else:
        first, *rest = text
        yield from (f"*{title}:* {first}".rstrip(), "")
        yield from _text(_dedented(["", *rest]), known)


def _dedented(text: list[str]) -> list[str]:
    """QAPI indents all but the first line of a member's text."""
    first, *rest = text
    indent = min((len(line) - len(line.lstrip()) for line in rest if line.strip()), default=0)
    return [first, *(line[indent:] for line in rest)]


def _text(lines: list[str], known: set[str]) -> Iterator[str]:
    """A paragraph per block of lines, with links where a definition is named."""
    for line in lines:
        yield re.sub(r"@([A-Za-z][\w-]*)", lambda name: _linked(name[1], known), line)
    yield ""


def _linked(text: str, known: set[str]) -> str:
    words = re.findall(r"[A-Za-z][\w-]*", text)
    named = next((word for word in words if word in known), None)
    if named:
        return text.replace(named, f":ref:`{named} <qapi-{named}>`")
    return text if " " in text or "," in text else f"``{text}``"


class QapiReference(SphinxDirective):
    """Arguments: kinds (command, event, struct, enum) or names."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec = {"except": directives.unchanged}  # noqa: RUF012 # docutils wants it so

    def run(self) -> list[nodes.Node]:
        for file in (MODULE, Path(__file__)):
            self.env.note_dependency(str(file))
        left_out = self.options.get("except", "").split()
        found = definitions(MODULE.read_text())
        shown = self.arguments[0].split()
        unknown = set(shown) - set(KINDS) - {definition.name for definition in found}
        if unknown:
            raise ExtensionError(f"qapi-reference: QAPI defines no {', '.join(sorted(unknown))}")
        lines = page([one for one in found if one.name not in left_out], shown)
        self.content = StringList(list(lines), source=str(MODULE))
        return self.parse_content_to_nodes(allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("qapi-reference", QapiReference)
    return {"parallel_read_safe": True}
