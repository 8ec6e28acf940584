"""OpenAI's API over HTTP, on top of any ``Service``. Does not use Ray."""
