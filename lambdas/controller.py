"""Function of the controller, called by a schedule every minute."""

from service.serverless.controller import ScheduledController

handler = ScheduledController()
