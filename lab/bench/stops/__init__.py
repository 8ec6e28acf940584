"""Ways to end a draft, compared on a cluster; and the bound of WISP's Theorem 1."""
