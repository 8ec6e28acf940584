"""The service: OpenAI's API over Ray Serve, and the coordinators behind it."""

from outrider.installation import check_packages

check_packages()  # here as well, as Serve imports an application without the command line
