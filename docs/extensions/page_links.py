# SPDX-License-Identifier: GPL-2.0-or-later
"""Turns a page's name, ``time.rst``, into a link to the page.

So the pages read well as plain text too, where a role would be noise.
"""

import posixpath
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform


class PageLinks(SphinxTransform):
    default_priority = 500

    def apply(self, **_options: Any) -> None:
        for literal in list(self.document.findall(nodes.literal)):
            page = self._page(literal.astext())
            if page:
                link = addnodes.pending_xref(
                    "", nodes.inline("", ""), refdomain="std", reftype="doc",
                    reftarget=f"/{page}", refdoc=self.env.docname, refexplicit=False, refwarn=True,
                )  # fmt: skip
                literal.replace_self(link)

    def _page(self, name: str) -> str | None:
        """The page that is named relative to this one or to the folder of all pages."""
        if not name.endswith(".rst"):
            return None
        folder = posixpath.dirname(self.env.docname)
        plain = name.removeprefix("docs/").removesuffix(".rst")
        found = (posixpath.normpath(posixpath.join(folder, plain)), plain)
        return next((page for page in found if page in self.env.found_docs), None)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_transform(PageLinks)
    return {"parallel_read_safe": True}
