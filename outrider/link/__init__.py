"""The link between coordinator and drafter: what it does to messages, emulated, measured and predicted."""
