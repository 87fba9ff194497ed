"""Readies a checkout for building a release: TAG is checked, and what needs the repository's address gets it.

    TAG=v0.2.0 REPOSITORY_URL=https://host/owner/name python .github/prepare_release.py

Relative links of README.md lead nowhere on PyPI, so they become links to the tagged files; pyproject.toml
gets [project.urls]. Nothing of this is committed.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_RELATIVE_LINK = re.compile(r"(!?)\]\((?![a-z]+:|#)([^)\s]+)\)")


def main() -> int:
    """0, or 1 with a sentence on stderr."""
    tag, repository = os.environ["TAG"], os.environ["REPOSITORY_URL"].rstrip("/")
    version = re.search(
        r'__version__ = "(.+)"', (ROOT / "tclint/core/version.py").read_text(encoding="utf-8")
    )
    assert version is not None
    if tag != f"v{version[1]}":
        print(f"The tag {tag} is not v{version[1]}, the version in tclint/core/version.py.", file=sys.stderr)
        return 1
    if f"## {version[1]}" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        print(f"CHANGELOG.md has no section '## {version[1]}'.", file=sys.stderr)
        return 1
    readme = ROOT / "README.md"
    readme.write_text(absolute(readme.read_text(encoding="utf-8"), repository, tag), encoding="utf-8")
    project = ROOT / "pyproject.toml"
    urls = f'[project.urls]\nSource = "{repository}"\nChangelog = "{repository}/blob/{tag}/CHANGELOG.md"\n\n'
    text = project.read_text(encoding="utf-8")
    project.write_text(text.replace("[project.scripts]\n", urls + "[project.scripts]\n", 1), encoding="utf-8")
    return 0


def absolute(markdown: str, repository: str, tag: str) -> str:
    """Relative links and pictures lead to the files of a tag."""
    lines = markdown.split("\n")
    for number, line in enumerate(lines):
        kind = "raw" if re.match(r"!\[", line) else "blob"
        lines[number] = _RELATIVE_LINK.sub(rf"\1]({repository}/{kind}/{tag}/\2)", line)
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
