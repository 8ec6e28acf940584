"""The service: OpenAI's API over Ray Serve, and the coordinators behind it."""

from outrider.installation import check_packages
from outrider.models.distributions import look_up_one_by_one

check_packages()  # here as well, as Serve imports an application without the command line
look_up_one_by_one()  # before any module imports transformers
