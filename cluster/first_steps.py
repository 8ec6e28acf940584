"""What to try on a service that has just started."""

import json
import shlex

from outrider.config.schema import Config


def first_steps(config: Config, url: str) -> tuple[str, ...]:
    """The page's address, and a request that can be pasted into a shell."""
    body = {
        "model": config.model.public_name,
        "messages": [{"role": "user", "content": "Name the capital of France."}],
    }
    key = ' -H "Authorization: Bearer $OUTRIDER_API_KEY"' if config.auth.has_keys else ""
    asked = shlex.quote(json.dumps(body, ensure_ascii=False))
    return (
        f"Page: {url}/",
        f"Try: curl {url}/v1/chat/completions{key} -H 'Content-Type: application/json' -d {asked}",
    )
