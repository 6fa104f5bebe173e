"""Metadata of a package: the README with absolute links, and the project's addresses.

Hatchling loads this when a wheel is built. The README of the repository has relative links, which lead
nowhere on the page of a package index. The absolute ones are made from one address, `repository` in
pyproject.toml, and lead to the files of the version that is packaged.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
RELATIVE = re.compile(r"(!?)(\[[^\]]*\])\((?![a-z]+:|#)([^)\s]+)\)")


class PackageLinks(MetadataHookInterface):
    """Fills in what pyproject.toml declares as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the long description and the addresses."""
        repository, tag = self.config["repository"], f"v{metadata['version']}"
        files, images = f"{repository}/blob/{tag}", f"{repository}/raw/{tag}"
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute_links(readme, files=files, images=images),
        }
        metadata["urls"] = {
            "Repository": repository,
            "Documentation": f"{files}/docs/README.md",
            "Changelog": f"{files}/CHANGELOG.md",
            "Issues": f"{repository}/issues",
            "Security": f"{files}/SECURITY.md",
        }


def absolute_links(text: str, *, files: str, images: str) -> str:
    """The text with each relative link made absolute; blocks of code stay as they are."""

    def absolute(link: re.Match[str]) -> str:
        mark, words, target = link.groups()
        return f"{mark}{words}({images if mark else files}/{target})"

    parts = FENCED.split(text)
    parts[::2] = [RELATIVE.sub(absolute, part) for part in parts[::2]]
    return "".join(parts)
