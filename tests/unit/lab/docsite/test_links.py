"""Links between files of the repository hold on the site, too."""

from pathlib import Path

import pytest

from lab.docsite.links import for_site, repository_path, site_path, targets

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("file", "page"),
    [
        ("README.md", "index.md"),
        ("docs/how-to/keys.md", "how-to/keys.md"),
        ("k8s/README.md", "repository/k8s/README.md"),
        ("cluster/aws.yaml", "repository/cluster/aws.yaml"),
    ],
)
def test_each_file_has_one_place(file: str, page: str) -> None:
    assert site_path(file) == page
    assert repository_path(page) == file


@pytest.mark.parametrize(
    ("file", "link", "on_site"),
    [
        ("README.md", "docs/how-to/keys.md", "how-to/keys.md"),
        ("README.md", "k8s/", "repository/k8s/README.md"),
        ("docs/how-to/keys.md", "../../README.md#ask-it", "../index.md#ask-it"),
        ("docs/how-to/keys.md", "trust.md", "trust.md"),
        ("docs/how-to/keys.md", "../../cluster/aws.yaml", "../repository/cluster/aws.yaml"),
        ("k8s/README.md", "../docs/design/0043-untrusted-drafters.md", "../../design/0043-untrusted-drafters.md"),
        ("docs/how-to/configure.md", "../reference/settings.md#model", "../reference/settings.md#model"),
        ("README.md", "https://www.ray.io", "https://www.ray.io"),
        ("README.md", "#ask-it", "#ask-it"),
        ("README.md", "docs/no-such-page.md", "docs/no-such-page.md"),
    ],
)
def test_links_lead_to_the_same_file(file: str, link: str, on_site: str) -> None:
    assert for_site(f"See [it]({link}), ![it]({link}).", file, ROOT) == f"See [it]({on_site}), ![it]({on_site})."
    assert for_site(f"[it]: {link}", file, ROOT) == f"[it]: {on_site}"


def test_code_is_left_alone() -> None:
    text = "`[a](LICENSE)`\n\n```sh\n[b](LICENSE)\n```\n\n[`c`](LICENSE)\n"
    assert for_site(text, "README.md", ROOT) == text.replace("[`c`](LICENSE)", "[`c`](repository/LICENSE)")
    assert list(targets(text, "README.md", ROOT)) == ["LICENSE"]
