"""Queue and run tasks with accounts in turn, so that an account with many tasks delays only itself."""
