"""Reads and checks the application's configuration in a file for Serve or KubeRay before it is applied."""

from collections.abc import Iterator, Mapping
from typing import Any

from outrider.config.reloadable import with_reloadable
from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError
from outrider.documents.yaml_text import parse_yaml, parse_yaml_documents
from serve_app.app import config_of

_BUILDER = "serve_app.app:build"
_DEPLOYMENTS = ("Ingress", "Coordinator")  # both take reloadable settings


def configs_in(text: str, source: str) -> dict[str, Config]:
    """Return the configuration of each of our applications, by name, with its deployments' reloadable settings.

    Args:
        text: YAML of one or more documents, in Serve's format or of KubeRay's kind ``RayService``.
        source: name of the text in error messages.
    """
    documents = [one for one in parse_yaml_documents(text, source) if isinstance(one, dict)]
    applications = [one for document in documents for one in _applications(document, source)]
    found = {one.get("name", "default"): _config(one) for one in applications if one.get("import_path") == _BUILDER}
    if not found:
        raise ConfigError(
            source, f"an application with import_path: {_BUILDER}", [one.get("name") for one in applications]
        )
    return found


def _applications(document: Mapping[str, Any], source: str) -> Iterator[Mapping[str, Any]]:
    spec = document.get("spec")
    if document.get("kind") == "RayService" and isinstance(spec, dict):
        document = parse_yaml(spec.get("serveConfigV2", ""), source) or {}
    yield from document.get("applications") or ()


def _config(application: Mapping[str, Any]) -> Config:
    config = config_of(application.get("args") or {})
    given = {one["name"]: one for one in application.get("deployments") or () if "user_config" in one}
    reloadable = [given.get(name, {}).get("user_config", {}) for name in _DEPLOYMENTS]
    if reloadable[0] != reloadable[1]:
        needed = f"the same user_config for {' and '.join(_DEPLOYMENTS)} (a YAML anchor will do)"
        raise ConfigError("deployments", needed, reloadable)
    return with_reloadable(config, reloadable[0])
