# SPDX-License-Identifier: GPL-2.0-or-later
"""The directive class-reference: every number of every storage class, with its source."""

from collections.abc import Iterator, Mapping

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from batchflush import paths, profiles


def page(classes: Mapping[str, profiles.Profile]) -> Iterator[str]:
    """The classes as reStructuredText, line by line."""
    for profile in classes.values():
        yield from (profile.name, "-" * len(profile.name), "", escaped(profile.title), "")
        yield from (".. list-table::", "   :header-rows: 1", "   :widths: 24 14 8 10 44", "")
        yield from _row("Setting", "Value", "Unit", "Grade", "Source")
        for where, settings in (("", profile.node), ("device: ", profile.front_end)):
            for name, setting in settings.items():
                value = setting.value if isinstance(setting.value, str) else f"{setting.value:,}"
                told = " ".join(setting.source.split())
                yield from _row(
                    f"{where}``{name}``", value, setting.unit, setting.grade, escaped(told)
                )
        yield ""


def _row(*cells: object) -> Iterator[str]:
    for number, cell in enumerate(cells):
        yield f"   {'*' if number == 0 else ' '} - {cell}".rstrip()


def escaped(text: str) -> str:
    """Plain text, in which no character means anything to reStructuredText."""
    return "".join(f"\\{char}" if char in "\\*`|_" else char for char in text)


class ClassReference(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(paths.PROFILES))
        self.env.note_dependency(__file__)
        lines = StringList(list(page(profiles.load())), source=str(paths.PROFILES))
        return self.parse_content_to_nodes_from(lines)

    def parse_content_to_nodes_from(self, lines: StringList) -> list[nodes.Node]:
        self.content = lines
        return self.parse_content_to_nodes(allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("class-reference", ClassReference)
    return {"parallel_read_safe": True}
