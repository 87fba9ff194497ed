"""An mkdocs hook: links out of docs/ lead to the repository, pages show examples, the menu lists rules."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"(?<!!)\[([^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*)\]\((\.\./[^)#\s]*)(#[^)\s]*)?\)")
_EXAMPLE = re.compile(r"^- \[(.+?)\]\((\.\./[^)]+\.py)\)(?:, \[fixed\]\((\.\./[^)]+)\))?$", re.MULTILINE)


def on_config(config: MkDocsConfig) -> None:
    """Put the pages of all rules into the menu; mkdocs calls this once it has read the configuration."""
    families: dict[str, list[dict[str, str]]] = {}
    for page in sorted((ROOT / "docs" / "rules").glob("*[0-9].md")):
        [title] = re.findall(r"^# (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)[:1]
        families.setdefault(page.stem[:3], []).append({title: f"rules/{page.name}"})
    [reference] = [part["Reference"] for part in config.nav or () if "Reference" in part]
    reference[0] = {
        "Rules": [{"All rules": "rules/index.md"}, *({name: pages} for name, pages in families.items())]
    }


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Called by mkdocs for every page."""
    folder = posixpath.dirname(page.file.src_uri)
    if page.file.src_uri == "rules/index.md":
        page.meta["hide"] = ["toc"]  # a wide table

    def path_of(link: str) -> str:
        """The path of a relative link, from the root of the repository."""
        return posixpath.normpath(posixpath.join("docs", folder, link))

    def example(found: re.Match[str]) -> str:
        reason, program, fixed = found.groups()
        shown = _code(path_of(program)) + (f"\n    fixed:\n\n{_code(path_of(fixed))}" if fixed else "")
        title = reason.replace("\\", "").replace('"', "'")
        return f'??? example "{title}"\n\n{shown}'

    def link(found: re.Match[str]) -> str:
        words, target, anchor = found.groups()
        path = path_of(target)
        if path.startswith("docs/") or not config.repo_url:
            return found[0] if path.startswith("docs/") else words
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"[{words}]({config.repo_url.rstrip('/')}/{kind}/HEAD/{path}{anchor or ''})"

    return _LINK.sub(link, _EXAMPLE.sub(example, markdown))


def _code(path: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8").rstrip("\n")
    lines = ["```python", *text.splitlines(), "```"]
    return "\n".join(f"    {line}".rstrip() for line in lines) + "\n"
