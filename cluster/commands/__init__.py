"""One module for each command of ``outrider``: ``add_options`` says what it takes, ``run`` carries it out.

A module is imported when its command is asked for; what takes seconds to import (Ray, torch) only when it runs.
"""
