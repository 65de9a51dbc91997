"""Function of the controller, called by a schedule every minute."""

# Before anything that would import them, where they are installed, and not use them.
from service.process.without_pandas import refuse

refuse("httpx", "pandas")

from service.serverless.controller import ScheduledController  # noqa: E402

handler = ScheduledController()
