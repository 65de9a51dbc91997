"""Function that runs connectors, called by a schedule every minute."""

# Before imports of anything that would load these modules, where installed, without using them.
from service.process.without_pandas import refuse

refuse("httpx", "pandas")

from service.serverless.connect import ScheduledConnectors  # noqa: E402

handler = ScheduledConnectors()
