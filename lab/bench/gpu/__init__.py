"""Campaign on a GPU: checks of what is promised there, and costs."""
