"""Function of the controller, called by a schedule every minute."""

# Before imports of anything that would load these modules, where installed, without using them.
from service.process.without_pandas import refuse

refuse("httpx", "pandas")

from service.serverless.controller import ScheduledController  # noqa: E402

handler = ScheduledController()
