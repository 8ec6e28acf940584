"""OpenAI's Responses API: its bodies are read as chats, its answers written from a chat's."""
