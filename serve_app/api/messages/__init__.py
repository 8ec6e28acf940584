"""Anthropic's Messages API: requests are read as chats, answers written from a chat's."""
