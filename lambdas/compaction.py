"""Function that starts maintenance on EMR Serverless, and reports how it ended."""

from service.serverless.emr import EmrRuns, emr_settings
from service.serverless.launcher import Launcher
from service.serverless.metrics import MetricLog
from service.settings import Settings
from service.world.clock import real_world

_world = real_world()

handler = Launcher(EmrRuns(emr_settings(), Settings()), MetricLog(_world.now_ms), _world.now_ms)
