"""Ways to end a draft, side by side on a cluster; and what WISP's Theorem 1 bounds."""
