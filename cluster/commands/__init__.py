"""One module per command of ``outrider``: ``add_options`` declares its options, ``run`` executes it.

A module is imported when its command is chosen; slow imports (Ray, torch) wait until it runs.
"""
