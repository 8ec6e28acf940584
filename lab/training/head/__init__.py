"""Train the decision head of semantic verification and choose its threshold."""
