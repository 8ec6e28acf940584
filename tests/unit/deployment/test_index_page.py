"""What a package index shows: addresses, and a README without dead links."""

import re
import runpy
import tomllib

import pytest

from tests.unit.deployment.manifests import ROOT

PAGE = runpy.run_path(str(ROOT / ".github" / "index_page.py"))
ADDRESS, TAG = "https://git.example/o/outrider", "v0.1.0"
README = (ROOT / "README.md").read_text(encoding="utf-8")
LINKS = re.compile(r"\]\(([^)]+)\)")


def test_every_link_of_the_readme_is_absolute_and_leads_to_a_file_that_is_there() -> None:
    written = PAGE["absolute"](README, ADDRESS, TAG)
    relative = [link for link in LINKS.findall(README) if "://" not in link]
    links = LINKS.findall(written)
    assert all(link.startswith("https://") for link in links)
    ours = [link.removeprefix(f"{ADDRESS}/").split("/", 2) for link in links if link.startswith(ADDRESS)]
    assert [path for _, _, path in ours] == relative
    assert {tag for _, tag, _ in ours} == {TAG}
    assert all((ROOT / path.partition("#")[0]).exists() for _, _, path in ours)
    assert [path for kind, _, path in ours if kind == "raw"] == re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README)
    assert LINKS.sub("", written) == LINKS.sub("", README), "nothing else is changed"


@pytest.mark.parametrize("link", ["[a](https://x.example/y)", "[a](#deploy-it)", "[a](mailto:x@y.example)"])
def test_other_links_stay(link: str) -> None:
    assert PAGE["absolute"](link, ADDRESS, TAG) == link


def test_the_package_has_addresses_beside_what_it_has() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    before, after = tomllib.loads(text), tomllib.loads(PAGE["with_urls"](text, ADDRESS, TAG))
    urls = after["project"].pop("urls")
    assert after == before
    assert set(urls) >= {"Homepage", "Source", "Changelog", "Issues"}
    assert all(url.startswith(ADDRESS) for url in urls.values())


def test_a_release_is_built_with_them() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    prepared = 'python .github/index_page.py "$GITHUB_SERVER_URL/$GITHUB_REPOSITORY" "$GITHUB_REF_NAME"'
    assert text.index(prepared) < text.index("python -m build")
