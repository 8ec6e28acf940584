"""Hooks of MkDocs: the front page is README.md, reference pages are drawn, and files that pages link to are there."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from lab.docsite.api_page import api_page
from lab.docsite.cli_page import cli_page
from lab.docsite.links import for_site, repository_path, site_path, targets, with_space_before_lists
from lab.docsite.settings_page import settings_page

DRAWN = {"reference/settings.md": settings_page, "reference/command-line.md": cli_page, "reference/api.md": api_page}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is not in ``docs/``."""
    root = Path(config.docs_dir).parent
    files.append(File.generated(config, "index.md", abs_src_path=str(root / "README.md")))
    for path, draw in DRAWN.items():
        files.append(File.generated(config, path, content=draw()))
    pages = [file for file in files if file.is_documentation_page()]
    while pages:
        page = pages.pop()
        for target in targets(page.content_string, repository_path(page.src_uri), root):
            if files.get_file_from_path(site_path(target)) is None and (root / target).is_file():
                added = File.generated(config, site_path(target), abs_src_path=str(root / target))
                added.inclusion = InclusionLevel.NOT_IN_NAV
                files.append(added)
                pages += [added] if added.is_documentation_page() else []
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point a page's links at the site's files, and have its lists read as GitHub reads them."""
    del files
    return for_site(with_space_before_lists(markdown), repository_path(page.file.src_uri), Path(config.docs_dir).parent)
